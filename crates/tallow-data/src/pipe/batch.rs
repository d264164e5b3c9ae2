//! Values to lists of values (PyTorch's `Batcher`): see [`Pipe::batch`](super::Pipe::batch).

use crate::{Error, Result};

/// A pipe of lists of values.
#[derive(Debug, Clone)]
pub struct Batched<I, T> {
    items: I,
    size: usize,
    drop_last: bool,
    pending: Vec<T>,
}

impl<I, T> Batched<I, T> {
    pub(super) fn new(items: I, size: usize, drop_last: bool) -> Result<Self> {
        if size == 0 {
            return Err(Error::Setting {
                what: "a batch",
                expected: "at least 1 sample".into(),
                found: "0".into(),
            });
        }
        Ok(Self {
            items,
            size,
            drop_last,
            pending: Vec::new(),
        })
    }
}

impl<T, I: Iterator<Item = Result<T>>> Iterator for Batched<I, T> {
    type Item = Result<Vec<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.items.next() {
                Some(Ok(value)) => self.pending.push(value),
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    let last = std::mem::take(&mut self.pending);
                    return (!self.drop_last && !last.is_empty()).then_some(Ok(last));
                }
            }
            if self.pending.len() == self.size {
                let next = Vec::with_capacity(self.size);
                return Some(Ok(std::mem::replace(&mut self.pending, next)));
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Errors come through singly, so there can be as many items as go in.
        let (lower, upper) = self.items.size_hint();
        let lower = lower.saturating_add(self.pending.len()) / self.size;
        let last = usize::from(!self.pending.is_empty());
        (lower, upper.and_then(|upper| upper.checked_add(last)))
    }
}
