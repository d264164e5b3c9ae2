//! Settings that make no sense are errors that name both sides.

use tallow_data::transform::{RandomErasing, Transform, pipeline};
use tallow_data::{Image, Normalize};

use crate::{picture, stream};

#[test]
fn a_crop_larger_than_its_picture_names_both_sizes() {
    let crop = pipeline().center_crop(224);
    let error = crop
        .apply(picture([200, 300], 3), &mut stream(0))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "CenterCrop needs a picture of at least 224x224 (height x width), found one of 200x300; resize it before, or pad it"
    );
    let crop = pipeline().random_crop([10, 40], 2);
    let error = crop.apply(picture([8, 30], 3), &mut stream(0)).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("10x40") && message.contains("8x30"),
        "{message}"
    );
}

#[test]
fn impossible_settings_are_found_before_any_picture_is_there() {
    fn check(transform: impl Transform<Image, Output = Image>, words: &str) {
        let pipeline = pipeline().then(transform);
        let message = pipeline.check().unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
        let applied = pipeline.apply(picture([9, 9], 3), &mut stream(0));
        assert_eq!(applied.unwrap_err().to_string(), message);
    }
    use tallow_data::transform::{
        Affine, CenterCrop, ColorJitter, RandAugment, RandomAffine, RandomCrop, RandomGrayscale,
        RandomHorizontalFlip, RandomResizedCrop, RandomRotation, RandomVerticalFlip, Resize,
        TrivialAugmentWide,
    };
    check(Resize::new(0), "Resize");
    check(Resize::new([usize::MAX, 2]), "Resize");
    check(Resize::new(9).max_size(9), "max_size");
    check(Resize::new([9, 9]).max_size(20), "max_size");
    check(CenterCrop::new([3, 0]), "CenterCrop");
    check(RandomCrop::new(0), "RandomCrop");
    check(RandomHorizontalFlip { p: 1.5 }, "1.5");
    check(RandomVerticalFlip { p: f64::NAN }, "NaN");
    check(RandomGrayscale { p: -1. }, "-1");
    check(RandomRotation::new(f64::INFINITY), "RandomRotation");
    check(
        Affine {
            scale: 0.,
            ..Affine::default()
        },
        "Affine",
    );
    check(
        RandomAffine {
            translate: [2., 0.],
            ..RandomAffine::default()
        },
        "translation",
    );
    check(
        ColorJitter {
            hue: 0.6,
            ..ColorJitter::default()
        },
        "hue",
    );
    check(
        RandAugment {
            magnitude: 31,
            ..RandAugment::default()
        },
        "magnitude",
    );
    check(
        TrivialAugmentWide {
            num_magnitude_bins: 0,
            ..Default::default()
        },
        "bin",
    );
    check(
        RandomResizedCrop {
            ratio: [2., 1.],
            ..RandomResizedCrop::new(4)
        },
        "ratio",
    );
}

#[test]
fn normalisation_of_the_wrong_number_of_channels_is_an_error() {
    let normalize = Normalize {
        mean: vec![0.5, 0.5],
        std: vec![0.5],
    };
    let pipeline = pipeline().to_tensor().normalize(normalize);
    pipeline.check().unwrap();
    let error = pipeline
        .apply(picture([2, 2], 3), &mut stream(0))
        .unwrap_err();
    assert!(error.to_string().contains("3 channels"), "{error}");
}

#[test]
fn erasing_checks_its_settings() {
    let erasing = RandomErasing {
        scale: [0.5, 0.1],
        ..RandomErasing::default()
    };
    assert!(
        pipeline()
            .to_tensor()
            .random_erasing(erasing)
            .check()
            .is_err()
    );
}
