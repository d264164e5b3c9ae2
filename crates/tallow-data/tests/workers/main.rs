//! The loader's workers: the same batches for any number of them, whatever goes wrong.

mod bounds;
mod faults;
mod mixing;
mod order;
mod pipelines;
mod resume;

use tallow_data::{Dataset, Error, Result};

/// Numbers of workers to compare; 0 makes batches on the reader's thread.
const WORKERS: [usize; 4] = [0, 1, 2, 5];

/// Numbers whose sample is the number itself; some fail, and some panic.
#[derive(Clone, Default)]
struct Numbers {
    len: usize,
    failing: Vec<usize>,
    panicking: Vec<usize>,
}

impl Numbers {
    fn new(len: usize) -> Self {
        Self {
            len,
            ..Self::default()
        }
    }
}

impl Dataset for Numbers {
    type Sample = u64;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<u64> {
        assert!(!self.panicking.contains(&index), "no {index} today");
        if self.failing.contains(&index) {
            return Err(Error::custom(format!("{index} is spoiled")));
        }
        Ok(index as u64)
    }

    fn describe(&self, index: usize) -> String {
        format!("number {index} (numbers/{index}.txt)")
    }
}
