//! Batches of an image data set: what is in them, and that they depend on seed and epoch alone.

use tallow_data::{
    Augment, Batch, BatchSource, Error, ImageDataset, LoaderConfig, Normalize, Result,
};

/// `n` images `[2, 4, 5]` of different bytes; the label of image i is i.
fn dataset(n: usize) -> ImageDataset {
    let pixels = (0..n * 40).map(|i| (i * 7 + i / 251 + 1) as u8).collect();
    let names = (0..n).map(|i| i.to_string());
    ImageDataset::new(pixels, [2, 4, 5], (0..n as u32).collect(), names).unwrap()
}

fn batches(source: &impl BatchSource, epoch: u64) -> Vec<Batch> {
    source.epoch(epoch).unwrap().collect::<Result<_>>().unwrap()
}

/// Labels and pixels of an epoch, to the bit.
fn content(source: &impl BatchSource, epoch: u64) -> Vec<(Vec<u32>, Vec<u32>)> {
    let bits = |batch: &Batch| values(batch).into_iter().map(f32::to_bits).collect();
    batches(source, epoch)
        .iter()
        .map(|batch| (labels(batch), bits(batch)))
        .collect()
}

fn values(batch: &Batch) -> Vec<f32> {
    batch.images.flatten_all().unwrap().to_vec1().unwrap()
}

fn labels(batch: &Batch) -> Vec<u32> {
    batch.labels.to_vec1().unwrap()
}

fn all_labels(source: &impl BatchSource, epoch: u64) -> Vec<u32> {
    batches(source, epoch).iter().flat_map(labels).collect()
}

fn augmented(seed: u64, prefetch: usize) -> LoaderConfig {
    LoaderConfig {
        seed,
        prefetch,
        augment: Augment::flip_and_crop(2),
        ..LoaderConfig::train(8)
    }
}

#[test]
fn evaluation_sees_every_sample_in_order_scaled_to_one() {
    let data = dataset(7);
    let loader = data.loader(LoaderConfig::eval(3)).unwrap();
    let batches = batches(&loader, 5);
    assert_eq!(loader.len_hint(), Some(3));
    assert_eq!(
        batches.iter().map(Batch::len).collect::<Vec<_>>(),
        [3, 3, 1]
    );
    assert_eq!(batches[2].images.dims(), [1, 2, 4, 5]);
    assert_eq!(
        batches.iter().flat_map(labels).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6]
    );
    let expected: Vec<f32> = data.pixels().iter().map(|&p| f32::from(p) / 255.).collect();
    assert_eq!(
        batches.iter().flat_map(values).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn training_drops_the_last_batch_and_mixes_each_epoch_anew() {
    let loader = dataset(103).loader(LoaderConfig::train(10)).unwrap();
    assert_eq!(loader.len_hint(), Some(10));
    let epochs: Vec<Vec<u32>> = (0..3).map(|epoch| all_labels(&loader, epoch)).collect();
    for labels in &epochs {
        let mut sorted = labels.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 100, "every sample once at most");
        assert_ne!(*labels, sorted, "mixed");
    }
    assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2]);
}

#[test]
fn an_epoch_does_not_depend_on_prefetch_or_on_what_was_read_before() {
    let data = dataset(50);
    let reference = content(&data.loader(augmented(1, 0)).unwrap(), 3);
    for prefetch in [1, 2, 5] {
        let loader = data.loader(augmented(1, prefetch)).unwrap();
        let _half_read = loader.epoch(2).unwrap().nth(1);
        let mut other = loader.epoch(4).unwrap();
        let _ = other.next();
        assert_eq!(content(&loader, 3), reference);
        assert_eq!(content(&loader, 3), reference);
    }
    assert_ne!(
        content(&data.loader(augmented(2, 0)).unwrap(), 3),
        reference,
        "another seed"
    );
}

#[test]
fn a_samples_changes_do_not_depend_on_its_place_in_the_batches() {
    let data = dataset(24);
    let by_label = |config: LoaderConfig| {
        let mut samples = Vec::new();
        for batch in batches(&data.loader(config).unwrap(), 7) {
            samples.extend(
                labels(&batch)
                    .into_iter()
                    .zip(values(&batch).chunks(40).map(<[f32]>::to_vec)),
            );
        }
        samples.sort_by_key(|&(label, _)| label);
        samples
    };
    let shuffled = by_label(augmented(1, 2));
    assert_eq!(
        shuffled,
        by_label(LoaderConfig {
            batch_size: 3,
            shuffle: false,
            ..augmented(1, 0)
        })
    );
}

#[test]
fn changes_are_drawn_anew_in_each_epoch_and_for_each_seed() {
    let data = dataset(24);
    let loader = |seed| {
        let config = LoaderConfig {
            shuffle: false,
            ..augmented(seed, 0)
        };
        data.loader(config).unwrap()
    };
    let reference = content(&loader(1), 0);
    assert_ne!(content(&loader(1), 1), reference);
    assert_ne!(content(&loader(2), 0), reference);
}

#[test]
fn normalisation_is_by_channel() {
    let data = dataset(3);
    let normalize = Normalize {
        mean: vec![0.5, 0.25],
        std: vec![0.5, 2.],
    };
    let config = LoaderConfig {
        normalize: Some(normalize),
        ..LoaderConfig::eval(3)
    };
    let got = values(&batches(&data.loader(config).unwrap(), 0)[0]);
    for (i, (&value, &pixel)) in got.iter().zip(data.pixels()).enumerate() {
        let (mean, std) = [(0.5, 0.5), (0.25, 2.)][i / 20 % 2];
        assert_eq!(value, (f32::from(pixel) / 255. - mean) / std, "value {i}");
    }
}

#[test]
fn a_data_set_normalised_by_its_own_statistics_has_mean_zero_and_deviation_one() {
    let data = dataset(300);
    let normalize = data.channel_stats().unwrap();
    assert_eq!(normalize.mean.len(), 2);
    let config = LoaderConfig {
        normalize: Some(normalize),
        ..LoaderConfig::eval(300)
    };
    let got = values(&batches(&data.loader(config).unwrap(), 0)[0]);
    for channel in 0..2 {
        let of_channel = || {
            got.chunks(20)
                .skip(channel)
                .step_by(2)
                .flatten()
                .map(|&v| f64::from(v))
        };
        let count = of_channel().count() as f64;
        let mean = of_channel().sum::<f64>() / count;
        let variance = of_channel().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
        assert!(
            mean.abs() < 1e-5 && (variance - 1.).abs() < 1e-5,
            "{mean} {variance}"
        );
    }
}

/// The image shifted and perhaps mirrored, done one pixel at a time.
fn changed(image: &[u8], [down, right]: [isize; 2], flip: bool) -> Vec<f32> {
    let mut out = Vec::new();
    for (c, y, x) in (0..2).flat_map(|c| (0..4).flat_map(move |y| (0..5).map(move |x| (c, y, x)))) {
        let x = if flip { 4 - x } else { x };
        let (from_y, from_x) = (y - down, x - right);
        let inside = (0..4).contains(&from_y) && (0..5).contains(&from_x);
        let pixel = if inside {
            image[(c * 20 + from_y * 5 + from_x) as usize]
        } else {
            0
        };
        out.push(f32::from(pixel) / 255.);
    }
    out
}

#[test]
fn augmentation_flips_and_shifts_and_does_nothing_else() {
    let data = dataset(400);
    let config = LoaderConfig {
        augment: Augment::flip_and_crop(2),
        ..LoaderConfig::eval(400)
    };
    let got = values(&batches(&data.loader(config).unwrap(), 0)[0]);
    let changes: Vec<_> = (-2..=2)
        .flat_map(|down| {
            (-2..=2).flat_map(move |right| [false, true].map(|flip| ([down, right], flip)))
        })
        .collect();
    let mut seen = vec![0; changes.len()];
    for (i, image) in got.chunks(40).enumerate() {
        let original = data.image(i).unwrap();
        let which = changes
            .iter()
            .position(|&(shift, flip)| changed(original, shift, flip) == image);
        seen[which.unwrap_or_else(|| panic!("image {i} was changed in another way"))] += 1;
    }
    // 400 draws from 50 equal chances.
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}

#[test]
fn settings_that_make_no_sense_are_errors() {
    let data = dataset(10);
    let eval = || LoaderConfig::eval(2);
    let normalize = |mean: &[f32], std: &[f32]| {
        Some(Normalize {
            mean: mean.to_vec(),
            std: std.to_vec(),
        })
    };
    let bad = [
        LoaderConfig::eval(0),
        LoaderConfig::train(11),
        LoaderConfig {
            normalize: normalize(&[0.; 3], &[1.; 3]),
            ..eval()
        },
        LoaderConfig {
            normalize: normalize(&[0.], &[0.]),
            ..eval()
        },
        LoaderConfig {
            normalize: normalize(&[0.], &[-1.]),
            ..eval()
        },
        LoaderConfig {
            normalize: normalize(&[f32::NAN], &[1.]),
            ..eval()
        },
        LoaderConfig {
            normalize: normalize(&[], &[1.]),
            ..eval()
        },
        LoaderConfig {
            augment: Augment::flip_and_crop(4),
            ..eval()
        },
        LoaderConfig {
            augment: Augment::flip_and_crop(usize::MAX),
            ..eval()
        },
    ];
    for config in bad {
        let error = data.loader(config.clone()).map(|_| ()).unwrap_err();
        assert!(
            matches!(error, Error::Setting { .. }),
            "{config:?}: {error}"
        );
    }
    let message = data
        .loader(LoaderConfig::train(11))
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert_eq!(
        message,
        "a loader needs batches of 1 to 10 samples, the size of the data set, found batches \
         of 11 samples, drop_last: true"
    );
    data.loader(LoaderConfig::eval(11)).unwrap();
}

#[test]
fn splits_share_the_samples_and_count_them() {
    let names = ["x", "y", "z"];
    let data =
        ImageDataset::new((0..12).collect(), [1, 1, 2], vec![0, 2, 2, 0, 2, 0], names).unwrap();
    assert_eq!(data.class_counts(), [3, 0, 3]);
    let (first, rest) = data.split_at(4).unwrap();
    assert_eq!(
        (first.labels(), rest.labels()),
        (&[0, 2, 2, 0][..], &[2, 0][..])
    );
    assert_eq!(
        (rest.pixels(), rest.image(1), rest.image(2)),
        (&[8, 9, 10, 11][..], Some(&[10, 11][..]), None)
    );
    let (a, b) = rest.split_at(1).unwrap();
    assert_eq!((a.pixels(), b.pixels()), (&[8, 9][..], &[10, 11][..]));
    assert_eq!(rest.take(1).labels(), [2]);
    assert_eq!(rest.take(100).len(), 2);
    assert!(rest.take(0).is_empty() && rest.take(0).channel_stats().is_err());
    assert!(matches!(rest.split_at(3), Err(Error::Setting { .. })));
}

#[test]
fn images_and_labels_have_to_fit() {
    let new = |pixels: usize, shape, labels: &[u32]| {
        ImageDataset::new(vec![0; pixels], shape, labels.to_vec(), ["x", "y"]).map(|_| ())
    };
    new(8, [1, 2, 2], &[0, 1]).unwrap();
    for result in [
        new(7, [1, 2, 2], &[0, 1]),
        new(8, [1, 2, 2], &[0]),
        new(8, [1, 2, 2], &[0, 2]),
        new(0, [0, 2, 2], &[0]),
        new(8, [usize::MAX, 2, 2], &[0]),
        new(8, [usize::MAX / 4 + 3, 4, 1], &[0, 1]),
    ] {
        assert!(matches!(result, Err(Error::Setting { .. })), "{result:?}");
    }
}
