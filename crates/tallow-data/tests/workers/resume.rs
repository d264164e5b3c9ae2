//! Going on in the middle of an epoch: what is left is what would have come.

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tallow_data::{
    BatchSource, Error, ImageDataset, Loader, LoaderConfig, LoaderState, OnError, Result, source,
};

use super::order::{loader, read};
use super::{Numbers, WORKERS};

fn rest<B: Send + 'static>(loader: &Loader<B>, state: &LoaderState) -> Vec<B> {
    let batches = loader.resume(state).unwrap();
    batches.collect::<Result<_>>().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_resumed_epoch_goes_on_with_other_workers(
        len in 8usize..60, batch_size in 1usize..8, read_first in 0usize..8, epoch in 0u64..3,
    ) {
        let config = LoaderConfig::train(batch_size);
        for before in WORKERS {
            let loader_before = loader(len, config.clone().with_workers(before));
            let whole = read(&loader_before, epoch);
            let mut batches = loader_before.batches(epoch).unwrap();
            let seen = batches.by_ref().take(read_first).count();
            let text = serde_json::to_string(&batches.state()).unwrap();
            drop(batches);
            let state: LoaderState = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(state.batch, seen as u64);
            for after in WORKERS {
                let loader = loader(len, config.clone().with_workers(after));
                prop_assert_eq!(&rest(&loader, &state)[..], &whole[seen..]);
            }
        }
    }

    #[test]
    fn a_resumed_stream_goes_on_with_other_workers(
        len in 0u64..60, buffer in 0usize..20, read_first in 0usize..8,
    ) {
        let open = |workers| {
            let numbers = source::stream(move |_| (0..len).map(Ok)).shuffle_buffer(buffer);
            let config = LoaderConfig { drop_last: false, ..LoaderConfig::train(4).with_workers(workers) };
            Loader::collated(numbers, |n, draw| Ok((n, draw.next_u64())), Ok, config).unwrap()
        };
        let whole = read(&open(0), 2);
        for (before, after) in [(0, 2), (2, 0), (1, 5), (5, 1)] {
            let loader = open(before);
            let mut batches = loader.batches(2).unwrap();
            let seen = batches.by_ref().take(read_first).count();
            let state = batches.state();
            prop_assert_eq!(&rest(&open(after), &state)[..], &whole[seen..]);
        }
    }
}

#[test]
fn what_was_left_out_before_counts_after() {
    let numbers = Numbers {
        failing: vec![1, 5, 9],
        ..Numbers::new(12)
    };
    let config = |workers| LoaderConfig {
        on_error: OnError::Skip { at_most: 2 },
        ..LoaderConfig::eval(4).with_workers(workers)
    };
    let open =
        |workers| Loader::collated(numbers.clone(), |n, _| Ok(n), Ok, config(workers)).unwrap();
    for workers in WORKERS {
        let loader = open(workers);
        let mut batches = loader.batches(0).unwrap();
        assert_eq!(batches.next().unwrap().unwrap(), [0, 2, 3]);
        assert_eq!(batches.next().unwrap().unwrap(), [4, 6, 7]);
        let state = batches.state();
        assert_eq!(state.skipped, 2);
        for batches in [batches, open(1).resume(&state).unwrap()] {
            let left: Vec<_> = batches.collect();
            assert!(
                matches!(&left[..], [Err(Error::TooManySkipped { skipped: 3, .. })]),
                "{left:?}"
            );
        }
    }
}

#[test]
fn samples_before_the_place_are_not_made_again() {
    let made = Arc::new(AtomicUsize::new(0));
    let counter = made.clone();
    let change = move |n, _: &mut tallow_tensor::rng::Stream| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(n)
    };
    let config = LoaderConfig::eval(10);
    let loader = Loader::collated(Numbers::new(1000), change, Ok, config).unwrap();
    let mut batches = loader.batches(0).unwrap();
    batches.next();
    let mut state = batches.state();
    drop(batches);
    state.batch = 99;
    made.store(0, Ordering::SeqCst);
    assert_eq!(rest(&loader, &state).len(), 1);
    assert_eq!(made.load(Ordering::SeqCst), 10);
}

#[test]
fn a_training_can_go_on_at_any_batch() {
    let data = ImageDataset::new(vec![1; 10], [1, 1, 1], (0..10).collect(), ["x"; 10]).unwrap();
    let loader = data.loader(LoaderConfig::train(2)).unwrap();
    let labels = |batches: tallow_data::Batches<'_>| -> Vec<Vec<u32>> {
        batches
            .map(|batch| batch.unwrap().labels.to_vec1().unwrap())
            .collect()
    };
    let whole = labels(loader.epoch(4).unwrap());
    let stored: Vec<_> = loader.epoch(4).unwrap().collect::<Result<_>>().unwrap();
    for done in 0..=5 {
        let rest = &whole[done..];
        assert_eq!(labels(loader.epoch_from(4, done as u64).unwrap()), rest);
        assert_eq!(labels(stored.epoch_from(4, done as u64).unwrap()), rest);
    }
    assert!(stored.epoch_from(4, 6).is_err());
    let left: Vec<_> = loader.epoch_from(4, 6).unwrap().collect();
    assert!(
        matches!(&left[..], [Err(Error::Setting { .. })]),
        "{left:?}"
    );
    let samples = BatchSource::stats(&loader).unwrap().samples;
    assert_eq!(samples, 10 + 10 + (10 + 8 + 6 + 4 + 2));
}

#[test]
fn a_state_of_another_loader_is_refused() {
    let state = loader(40, LoaderConfig::train(4))
        .batches(0)
        .unwrap()
        .state();
    let changed = [
        LoaderConfig::train(5),
        LoaderConfig {
            seed: 1,
            ..LoaderConfig::train(4)
        },
        LoaderConfig::eval(4),
    ];
    for config in changed {
        let error = loader(40, config).resume(&state).unwrap_err();
        assert!(matches!(error, Error::Setting { .. }), "{error}");
    }
    let error = loader(41, LoaderConfig::train(4))
        .resume(&state)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "a loader, to go on in the middle of an epoch, needs 40 samples, batches of 4, seed 42, shuffle: true, \
         drop_last: true, shard 0 of 1, found 41 samples, batches of 4, seed 42, shuffle: true, drop_last: true, \
         shard 0 of 1"
    );
}
