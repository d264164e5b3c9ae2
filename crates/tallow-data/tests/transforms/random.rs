//! Random transforms: sizes, ranges, repeatability, and rough frequencies.

use proptest::prelude::*;
use tallow_data::Image;
use tallow_data::transform::{
    ColorJitter, Erase, FloatImage, PaddingMode, RandAugment, RandomAffine, RandomCrop,
    RandomErasing, RandomGrayscale, RandomHorizontalFlip, RandomResizedCrop, RandomRotation,
    RandomVerticalFlip, Transform, TrivialAugmentWide, pipeline,
};

use crate::{picture, stream};

/// The same stream gives the same; whatever the stream, the size stays.
fn check_keeps_size(transform: impl Transform<Image, Output = Image>, size: [usize; 2], seed: u64) {
    for channels in [1, 3] {
        let image = picture(size, channels);
        let once = transform.apply(image.clone(), &mut stream(seed)).unwrap();
        assert_eq!([once.height(), once.width()], size);
        assert_eq!(once.channels(), channels);
        let again = transform.apply(image, &mut stream(seed)).unwrap();
        assert!(once == again, "the same stream gave another picture");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn most_transforms_keep_the_size(
        height in 1usize..40, width in 1usize..40, seed: u64,
        magnitude in 0usize..31, strength in 0f64..2.,
    ) {
        let size = [height, width];
        check_keeps_size(RandomHorizontalFlip { p: 0.5 }, size, seed);
        check_keeps_size(RandomVerticalFlip { p: 0.5 }, size, seed);
        check_keeps_size(RandomGrayscale { p: 0.5 }, size, seed);
        check_keeps_size(RandomRotation::new(180.), size, seed);
        check_keeps_size(RandAugment { magnitude, ..RandAugment::default() }, size, seed);
        check_keeps_size(TrivialAugmentWide::default(), size, seed);
        let jitter = ColorJitter {
            brightness: strength, contrast: strength, saturation: strength, hue: strength / 4.,
        };
        check_keeps_size(jitter, size, seed);
        let affine = RandomAffine {
            degrees: [-90., 90.], translate: [0.5, 1.], scale: [0.1, 3.],
            shear: [[-30., 30.], [-30., 30.]], ..RandomAffine::default()
        };
        check_keeps_size(affine, size, seed);
    }

    #[test]
    fn crops_have_the_size_that_was_asked(
        height in 1usize..40, width in 1usize..40, padding in 0usize..6,
        crop_height in 1usize..50, crop_width in 1usize..50, seed: u64,
        mode in prop::sample::select(vec![
            PaddingMode::Constant(9), PaddingMode::Edge, PaddingMode::Reflect, PaddingMode::Symmetric,
        ]),
    ) {
        let size = [crop_height, crop_width];
        let image = picture([height, width], 3);
        let cropped = RandomCrop::new(size).padding(padding, mode).apply(image.clone(), &mut stream(seed));
        let mirrored = match mode {
            PaddingMode::Reflect => 1,
            PaddingMode::Symmetric => 0,
            _ => isize::MIN,
        };
        let fits = crop_height <= height + 2 * padding
            && crop_width <= width + 2 * padding
            && padding as isize + mirrored <= height.min(width) as isize;
        match cropped {
            Ok(cropped) => prop_assert!(fits && [cropped.height(), cropped.width()] == size),
            Err(error) => prop_assert!(!fits, "{error}"),
        }
        let resized = RandomResizedCrop::new(size).apply(image, &mut stream(seed)).unwrap();
        prop_assert_eq!([resized.height(), resized.width()], size);
    }

    #[test]
    fn erasing_changes_a_rectangle_and_nothing_else(height in 1usize..30, width in 1usize..30, seed: u64) {
        let image = FloatImage::new(vec![1.; 3 * height * width], [3, height, width]).unwrap();
        let erasing = RandomErasing { p: 1., value: Erase::Value(5.), ..RandomErasing::default() };
        let erased = erasing.apply(image, &mut stream(seed)).unwrap();
        let planes: Vec<&[f32]> = erased.values().chunks(height * width).collect();
        prop_assert!(planes[1..].iter().all(|plane| plane == &planes[0]));
        let struck: Vec<usize> = (0..height * width).filter(|&i| planes[0][i] == 5.).collect();
        if let (Some(first), Some(last)) = (struck.first(), struck.last()) {
            let rows = last / width - first / width + 1;
            let columns = last % width - first % width + 1;
            prop_assert_eq!(struck.len(), rows * columns);
            // The sides are rounded, and so is the area.
            prop_assert!(struck.len() as f64 <= 0.33 * (height * width) as f64 + (height + width) as f64);
        }
    }
}

/// How often something happens in 2,000 samples.
fn count(happens: impl Fn(u64) -> bool) -> usize {
    (0..2_000).filter(|&index| happens(index)).count()
}

#[test]
fn flips_happen_as_often_as_asked() {
    let image = picture([4, 5], 3);
    for p in [0., 0.3, 1.] {
        let flip = RandomHorizontalFlip { p };
        let flips = count(|i| flip.apply(image.clone(), &mut stream(i)).unwrap() != image);
        let expected = (2_000. * p) as usize;
        assert!(
            flips.abs_diff(expected) < 100 * usize::from(p % 1. != 0.) + 1,
            "{flips}"
        );
    }
}

#[test]
fn crops_lie_in_all_places_equally_often() {
    // With 1 pixel of padding around 8x8, there are nine places.
    let image = Image::new((1..=64).collect(), [8, 8], 1).unwrap();
    let crop = RandomCrop::new(8).padding(1, PaddingMode::Constant(0));
    let mut counts = std::collections::HashMap::new();
    for index in 0..1_800 {
        let cropped = crop.apply(image.clone(), &mut stream(index)).unwrap();
        *counts.entry(cropped.into_values()).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 9);
    assert!(
        counts.values().all(|count| (140..260).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn brightness_stays_within_its_range() {
    let jitter = ColorJitter {
        brightness: 0.4,
        ..ColorJitter::default()
    };
    let image = Image::new(vec![100], [1, 1], 1).unwrap();
    let values: Vec<u8> = (0..2_000)
        .map(|i| {
            jitter
                .apply(image.clone(), &mut stream(i))
                .unwrap()
                .values()[0]
        })
        .collect();
    assert!(values.iter().all(|value| (60..=140).contains(value)));
    let low = values.iter().filter(|&&value| value < 80).count();
    assert!((400..600).contains(&low), "{low}");
}

#[test]
fn windows_of_random_size_cover_the_area_asked_for() {
    // A picture whose columns count up shows how wide the window was.
    let values = (0..64 * 64).map(|i| (i % 64 * 4) as u8).collect();
    let image = Image::new(values, [64, 64], 1).unwrap();
    let crop = RandomResizedCrop {
        scale: [0.25, 0.25],
        ratio: [1., 1.],
        ..RandomResizedCrop::new(32)
    };
    for index in 0..50 {
        let cropped = crop.apply(image.clone(), &mut stream(index)).unwrap();
        let row = &cropped.values()[..32];
        assert_eq!(row[31] - row[0], 31 * 4, "the window is 32 of 64 columns");
    }
}

#[test]
fn a_pipeline_depends_on_its_stream_alone() {
    let pipeline = pipeline()
        .random_resized_crop(16)
        .random_horizontal_flip(0.5)
        .color_jitter(ColorJitter {
            brightness: 0.4,
            hue: 0.1,
            ..ColorJitter::default()
        })
        .trivial_augment_wide()
        .to_tensor()
        .random_erasing(RandomErasing::default());
    let image = picture([20, 30], 3);
    let alone = pipeline.apply(image.clone(), &mut stream(5)).unwrap();
    for index in 0..5 {
        pipeline.apply(image.clone(), &mut stream(index)).unwrap();
    }
    let other = std::thread::spawn({
        let (pipeline, image) = (pipeline.clone(), image.clone());
        move || pipeline.apply(image, &mut stream(5)).unwrap()
    });
    assert_eq!(alone, other.join().unwrap());
    assert_ne!(alone, pipeline.apply(image, &mut stream(6)).unwrap());
}

/// torchvision pads what is missing on both sides, so that crops of a picture too small differ from draw to draw.
#[test]
fn small_pictures_are_padded_if_that_is_asked_for() {
    let crop = RandomCrop::new([10, 4]).pad_if_needed();
    let image = picture([7, 9], 3);
    let mut starts = std::collections::BTreeSet::new();
    for index in 0..200 {
        let found = crop.apply(image.clone(), &mut stream(index)).unwrap();
        assert_eq!([found.height(), found.width()], [10, 4]);
        // Which rows hold something: always all 7, somewhere between 3 rows below and 3 above.
        let row = |y: usize| (0..4).any(|x| found.pixel(y, x).iter().any(|&value| value != 0));
        let first = (0..10).find(|&y| row(y)).unwrap();
        assert!((first..first + 7).all(row) && !(first + 7..10).any(row));
        starts.insert(first);
    }
    assert_eq!(Vec::from_iter(starts), [0, 1, 2, 3]);
    // A picture that is large enough is cropped as ever.
    let image = picture([20, 20], 3);
    let plain = RandomCrop::new([10, 4]).apply(image.clone(), &mut stream(3));
    assert_eq!(crop.apply(image, &mut stream(3)).unwrap(), plain.unwrap());
}

#[test]
fn a_window_that_lies_in_the_padding_alone_holds_padding() {
    let image = picture([1, 1], 3);
    for seed in 0..200 {
        let crop = |mode| {
            let crop = RandomCrop::new([1, 1]).padding(3, mode);
            crop.apply(image.clone(), &mut stream(seed)).unwrap()
        };
        assert_eq!(crop(PaddingMode::Edge).values(), image.values());
        let constant = crop(PaddingMode::Constant(9));
        assert!(constant.values() == [9; 3] || constant.values() == image.values());
    }
}
