//! How much is in memory: samples that count themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tallow_data::{Dataset, Loader, LoaderConfig, Result, source};

#[derive(Default)]
struct Count {
    live: AtomicUsize,
    most: AtomicUsize,
}

/// A sample that is counted as long as it lives.
struct Counted(Arc<Count>);

impl Counted {
    fn new(count: &Arc<Count>) -> Self {
        let live = count.live.fetch_add(1, Ordering::SeqCst) + 1;
        count.most.fetch_max(live, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Samples(Arc<Count>);

impl Dataset for Samples {
    type Sample = Counted;

    fn len(&self) -> usize {
        400
    }

    fn get(&self, _: usize) -> Result<Counted> {
        Ok(Counted::new(&self.0))
    }
}

const BATCH: usize = 4;

/// Reads some batches, slowly if they are few, so that all that is allowed is made ahead.
fn most(loader: Loader<Vec<Counted>>, count: &Arc<Count>, read: usize) -> usize {
    let mut batches = loader.batches(0).unwrap();
    for batch in batches.by_ref().take(read) {
        // The batch in the reader's hands is its own business.
        drop(batch.unwrap());
        if read < 10 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(batches);
    assert_eq!(count.live.load(Ordering::SeqCst), 0, "all are dropped");
    count.most.load(Ordering::SeqCst)
}

#[test]
fn no_more_samples_live_than_workers_and_prefetch_allow() {
    for (workers, prefetch) in [(0, 2), (1, 1), (1, 3), (2, 2), (2, 4), (5, 2), (5, 5)] {
        for read in [0, 1, 7, 100] {
            let config = || LoaderConfig {
                workers,
                prefetch,
                ..LoaderConfig::train(BATCH)
            };
            // Beside what is made ahead there is the batch that was just read.
            let allowed = workers + prefetch.max(1) * BATCH + BATCH;
            let count = Arc::new(Count::default());
            let samples = Samples(count.clone());
            let loader = Loader::collated(samples, |s, _| Ok(s), Ok, config()).unwrap();
            let found = most(loader, &count, read);
            assert!(found <= allowed, "{found} by number: {workers}, {prefetch}");

            let count = Arc::new(Count::default());
            let in_stream = count.clone();
            let stream = source::stream(move |_| {
                let count = in_stream.clone();
                (0..400).map(move |_| Ok(Counted::new(&count)))
            });
            let buffer = 8;
            let stream = stream.shuffle_buffer(buffer);
            let loader = Loader::collated(stream, |s, _| Ok(s), Ok, config()).unwrap();
            let found = most(loader, &count, read);
            assert!(
                found <= allowed + buffer,
                "{found} of a stream: {workers}, {prefetch}"
            );
        }
    }
}

#[test]
fn batches_that_are_made_from_samples_keep_none_of_them() {
    let count = Arc::new(Count::default());
    let config = LoaderConfig {
        prefetch: 3,
        workers: 3,
        ..LoaderConfig::train(BATCH)
    };
    let collate = |samples: Vec<Counted>| Ok(samples.len());
    let loader = Loader::collated(Samples(count.clone()), |s, _| Ok(s), collate, config).unwrap();
    assert_eq!(loader.batches(0).unwrap().count(), 100);
    assert!(count.most.load(Ordering::SeqCst) <= 3 + 3 * BATCH);
}
