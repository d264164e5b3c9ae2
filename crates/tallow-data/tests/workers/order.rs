//! Order and contents: for any settings, those of no workers at all.

use proptest::prelude::*;
use tallow_data::{
    Augment, Batch, BatchSource, ImageDataset, Loader, LoaderConfig, Result, Shard, source,
};

use super::{Numbers, WORKERS};

/// A sample and what was drawn for it.
type Drawn = Vec<(u64, u64)>;

pub(super) fn loader(len: usize, config: LoaderConfig) -> Loader<Drawn> {
    let change = |number, draw: &mut tallow_tensor::rng::Stream| Ok((number, draw.next_u64()));
    Loader::collated(Numbers::new(len), change, Ok, config).unwrap()
}

pub(super) fn read<B: Send + 'static>(loader: &Loader<B>, epoch: u64) -> Vec<B> {
    loader
        .batches(epoch)
        .unwrap()
        .collect::<Result<_>>()
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn batches_are_the_same_for_any_number_of_workers(
        len in 1usize..60,
        batch_size in 1usize..9,
        prefetch in 1usize..6,
        (shuffle, drop_last) in any::<(bool, bool)>(),
        seed in any::<u64>(),
        epoch in 0u64..3,
        of in 1usize..3,
    ) {
        let shard = Shard { rank: of - 1, of };
        let config = LoaderConfig {
            shuffle, drop_last, seed, prefetch, shard, ..LoaderConfig::train(batch_size)
        };
        prop_assume!(len / of >= batch_size);
        let reference = read(&loader(len, LoaderConfig { workers: 0, ..config.clone() }), epoch);
        for workers in WORKERS {
            let loader = loader(len, LoaderConfig { workers, ..config.clone() });
            prop_assert_eq!(&read(&loader, epoch), &reference);
            prop_assert_eq!(loader.stats().batches, reference.len() as u64);
        }
    }

    #[test]
    fn streams_are_the_same_for_any_number_of_workers(
        len in 0u64..60, buffer in 0usize..20, prefetch in 1usize..6, epoch in 0u64..3,
    ) {
        let read_with = |workers| {
            let numbers = source::stream(move |pass| (0..len).map(move |n| Ok(n * 10 + pass.epoch)))
                .then(|n: u64| Ok(n + 1))
                .shuffle_buffer(buffer);
            let config = LoaderConfig {
                workers, prefetch, drop_last: false, ..LoaderConfig::train(4)
            };
            let change = |n, draw: &mut tallow_tensor::rng::Stream| Ok((n, draw.next_u64()));
            read(&Loader::collated(numbers, change, Ok, config).unwrap(), epoch)
        };
        let reference = read_with(0);
        let mut samples: Vec<u64> = reference.iter().flatten().map(|(n, _)| *n).collect();
        samples.sort_unstable();
        prop_assert_eq!(samples, (0..len).map(|n| n * 10 + epoch + 1).collect::<Vec<_>>());
        for workers in WORKERS {
            prop_assert_eq!(&read_with(workers), &reference);
        }
    }
}

#[test]
fn a_samples_draws_do_not_depend_on_its_place() {
    let by_number = |config: LoaderConfig| {
        let mut samples = read(&loader(40, config), 3).concat();
        samples.sort_unstable();
        samples
    };
    let in_order = by_number(LoaderConfig::eval(7));
    let mixed = LoaderConfig {
        drop_last: false,
        ..LoaderConfig::train(4)
    };
    assert_eq!(in_order, by_number(mixed.clone()));
    let halves = [0, 1].map(|rank| {
        by_number(LoaderConfig {
            shard: Shard { rank, of: 2 },
            ..mixed.clone()
        })
    });
    let mut both = halves.concat();
    both.sort_unstable();
    assert_eq!(both, in_order, "shards are disjoint and draw the same");
}

#[test]
fn readers_of_a_training_get_the_same_number_of_samples() {
    for (len, of) in [(10, 3), (11, 3), (12, 3), (7, 2)] {
        let counts: Vec<_> = (0..of)
            .map(|rank| {
                let config = LoaderConfig {
                    shard: Shard { rank, of },
                    ..LoaderConfig::train(1)
                };
                let by_number = loader(len, config.clone());
                let stream = source::stream(move |_| (0..len as u64).map(Ok));
                let stream = Loader::collated(stream, |n, _| Ok(n), Ok, config).unwrap();
                let count = read(&by_number, 0).len();
                assert_eq!(read(&stream, 0).len(), count);
                count
            })
            .collect();
        assert_eq!(counts, vec![len / of; of]);
    }
}

#[test]
fn batches_of_images_in_memory_are_the_same_for_any_number_of_workers() {
    let pixels = (0..50 * 3 * 25).map(|i| (i * 7 + i / 251) as u8).collect();
    let labels = (0..50).collect();
    let data =
        ImageDataset::new(pixels, [3, 5, 5], labels, (0..50).map(|i| i.to_string())).unwrap();
    let content = |workers| {
        let config = LoaderConfig {
            augment: Augment::flip_and_crop(2),
            workers,
            ..LoaderConfig::train(8)
        };
        let loader = data.loader(config).unwrap();
        assert_eq!(BatchSource::len_hint(&loader), Some(6));
        let bits = |batch: &Batch| -> (Vec<u32>, Vec<f32>) {
            let values = batch.images.flatten_all().unwrap().to_vec1().unwrap();
            (batch.labels.to_vec1().unwrap(), values)
        };
        read(&loader, 1).iter().map(bits).collect::<Vec<_>>()
    };
    let reference = content(0);
    for workers in WORKERS {
        assert_eq!(content(workers), reference);
    }
}
