//! No thread is left behind. One test, alone in its process, since it counts threads.

#![cfg(target_os = "linux")]

use std::time::Duration;

use tallow_data::{Loader, LoaderConfig, source};

/// The threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Waits until there are so many: the system lists a thread for a moment after it was joined.
fn wait_for(count: usize) {
    for _ in 0..20_000 {
        if threads() == count {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{} threads instead of {count}", threads());
}

#[test]
fn dropping_a_loaders_epoch_midway_leaves_no_thread() {
    let numbers = source::list(0..1000u64);
    let before = threads();
    for count in [1, 2, 5] {
        for read in [0, 1, 9, 1000] {
            let config = LoaderConfig::train(8).with_workers(count);
            let loader = Loader::collated(numbers.clone(), |n, _| Ok(n), Ok, config).unwrap();
            let mut batches = loader.batches(0).unwrap();
            let seen = batches.by_ref().take(read).filter(Result::is_ok).count();
            assert_eq!(seen, read.min(125));
            if read < 100 {
                wait_for(before + count);
            }
            drop(batches);
            wait_for(before);
        }
    }
}
