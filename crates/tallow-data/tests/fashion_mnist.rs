//! The real data: the embedded subset, and the full set it is cut from where that is installed.

use std::path::Path;

use tallow_data::{BatchSource, LoaderConfig, datasets};

/// Where Debian's package dataset-fashion-mnist puts the original files.
const FULL: &str = "/usr/share/datasets/fashion-mnist";

#[test]
fn the_subset_is_balanced_from_its_beginning() {
    let (train, test) = datasets::fashion_mnist_subset().unwrap();
    assert_eq!((train.len(), test.len()), (8_000, 1_000));
    assert_eq!(train.image_shape(), [1, 28, 28]);
    assert_eq!(train.class_counts(), [800; 10]);
    assert_eq!(test.class_counts(), [100; 10]);
    assert_eq!(train.take(50).class_counts(), [5; 10]);
    assert_eq!(train.class_names()[0], "T-shirt/top");
}

#[test]
fn the_subset_feeds_a_training_loop() {
    let (train, _) = datasets::fashion_mnist_subset().unwrap();
    let normalize = Some(train.channel_stats().unwrap());
    let loader = train
        .loader(LoaderConfig {
            normalize,
            ..LoaderConfig::train(128)
        })
        .unwrap();
    let batches = loader
        .epoch(0)
        .unwrap()
        .map(|batch| batch.unwrap().images.dims().to_vec());
    let batches: Vec<_> = batches.collect();
    assert_eq!(batches, vec![[128, 1, 28, 28]; 62]);
}

#[test]
fn the_full_set_is_read_and_holds_the_subset() {
    if !Path::new(FULL).is_dir() {
        eprintln!("skipped: {FULL} is not there (Debian package dataset-fashion-mnist)");
        return;
    }
    let (train, test) = datasets::fashion_mnist::load(FULL).unwrap();
    assert_eq!(train.class_counts(), [6_000; 10]);
    assert_eq!(test.class_counts(), [1_000; 10]);
    // The published figures.
    let stats = train.channel_stats().unwrap();
    assert!((stats.mean[0] - 0.2860).abs() < 1e-4, "{stats:?}");
    assert!((stats.std[0] - 0.3530).abs() < 1e-4, "{stats:?}");

    let (subset, _) = datasets::fashion_mnist_subset().unwrap();
    for class in 0..10u32 {
        let first = train
            .labels()
            .iter()
            .position(|&label| label == class)
            .unwrap();
        assert_eq!(subset.image(class as usize), train.image(first));
    }
}
