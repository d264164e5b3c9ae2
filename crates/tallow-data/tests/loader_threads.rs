//! No thread is left behind. One test, alone in its process, since it counts threads.

#![cfg(target_os = "linux")]

use tallow_data::{Loader, LoaderConfig, source};

/// The threads of this process that are a loader's.
fn workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "tallow-loader").count()
}

#[test]
fn dropping_a_loaders_epoch_midway_leaves_no_thread() {
    let numbers = source::list(0..1000u64);
    for count in [1, 2, 5] {
        for read in [0, 1, 9, 1000] {
            let config = LoaderConfig::train(8).with_workers(count);
            let loader = Loader::collated(numbers.clone(), |n, _| Ok(n), Ok, config).unwrap();
            let mut batches = loader.batches(0).unwrap();
            let seen = batches.by_ref().take(read).filter(Result::is_ok).count();
            assert_eq!(seen, read.min(125));
            if read < 100 {
                assert_eq!(workers(), count);
            }
            drop(batches);
            assert_eq!(workers(), 0);
        }
    }
}
