//! Results of Pillow and torchvision, made by `golden/make_transforms.py`: geometry within 1 of 255, colours within 2.

use std::path::PathBuf;

use tallow_data::decode::{self, DecodeOptions};
use tallow_data::transform::{
    Affine, FixedPipeline, FloatImage, Interpolation, PaddingMode, RandomCrop, Resize, ResizeTo,
    Rotation, Transform, functional, pipeline,
};
use tallow_data::{Image, Normalize};

use crate::stream;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/transforms")
}

fn stored(name: &str) -> Image {
    decode::open(folder().join(format!("{name}.png")), &DecodeOptions::rgb()).unwrap()
}

fn compare(name: &str, found: &Image, tolerance: u8) {
    let expected = stored(name);
    let size = |image: &Image| [image.height(), image.width(), image.channels()];
    assert_eq!(size(found), size(&expected), "{name}");
    let worst = expected
        .values()
        .iter()
        .zip(found.values())
        .map(|(a, b)| a.abs_diff(*b))
        .max();
    assert!(worst <= Some(tolerance), "{name}: off by {worst:?}");
}

fn check(name: &str, transform: impl Transform<Image, Output = Image>) {
    let found = transform.apply(stored("picture"), &mut stream(0)).unwrap();
    compare(name, &found, 1);
}

#[test]
fn resizing_is_pillows() {
    check("resize_shorter_40", Resize::new(40));
    check("resize_50x70", Resize::new([50, 70]));
    check("resize_larger", Resize::new([90, 100]));
    check("resize_max_size", Resize::new(40).max_size(50));
    check("resize_longer_50", Resize::new(ResizeTo::Longer(50)));
    check(
        "resize_bicubic",
        Resize::new([33, 47]).interpolation(Interpolation::Bicubic),
    );
}

#[test]
fn the_middle_is_cut_out_where_torchvision_does() {
    let found = pipeline().center_crop([40, 50]);
    compare(
        "center_crop",
        &found.apply_fixed(stored("picture")).unwrap(),
        0,
    );
}

/// Behind a resizing only the part that is cut out is made: the pixels of one after the other, but for rounding.
#[test]
fn a_resized_picture_is_cropped_as_if_it_had_been_whole() {
    let picture = || stored("picture");
    for (to, crop) in [
        (ResizeTo::from(40), [33, 30]),
        (ResizeTo::from(61), [20, 83]),
        (ResizeTo::from([90, 100]), [90, 31]),
        (ResizeTo::from([7, 200]), [1, 200]),
    ] {
        for interpolation in [
            Interpolation::Nearest,
            Interpolation::Bilinear,
            Interpolation::Bicubic,
        ] {
            let resize = Resize::new(to).interpolation(interpolation);
            let resized = pipeline().then(resize).apply_fixed(picture()).unwrap();
            let expected = pipeline().center_crop(crop).apply_fixed(resized).unwrap();
            let both = pipeline().then(resize).center_crop(crop);
            let found = both.apply_fixed(picture()).unwrap();
            assert_eq!(
                [found.height(), found.width()],
                [expected.height(), expected.width()]
            );
            let pairs = found.values().iter().zip(expected.values());
            let worst = pairs.map(|(a, b)| a.abs_diff(*b)).max();
            assert!(
                worst <= Some(1),
                "{to:?} {crop:?} {interpolation:?}: {worst:?}"
            );
        }
    }
    let both = pipeline().resize(40).center_crop([33, 30]);
    compare(
        "resize_center_crop",
        &both.apply_fixed(picture()).unwrap(),
        1,
    );
}

/// Numbers that nobody has looked at before `normalize` are the same as numbers that someone has.
#[test]
fn numbers_do_not_depend_on_who_looked_at_them() {
    let normalize = Normalize {
        mean: vec![0.485, 0.456, 0.406],
        std: vec![0.229, 0.224, 0.225],
    };
    let unseen = pipeline().to_tensor().normalize(normalize.clone());
    let seen = pipeline()
        .to_tensor()
        .lambda(|mut image: FloatImage| {
            image.values_mut().iter_mut().for_each(|value| *value += 0.);
            Ok(image)
        })
        .normalize(normalize);
    let unseen = unseen.apply_fixed(stored("picture")).unwrap();
    assert_eq!(unseen, seen.apply_fixed(stored("picture")).unwrap());
    let copy = unseen.clone();
    assert_eq!(copy.into_values(), unseen.values());
}

#[test]
fn flips_are_exact() {
    let horizontal = pipeline().random_horizontal_flip(1.);
    let vertical = pipeline().random_vertical_flip(1.);
    let flip = |p: &dyn Fn(Image) -> Image, name| compare(name, &p(stored("picture")), 0);
    flip(
        &|image| horizontal.apply(image, &mut stream(0)).unwrap(),
        "horizontal_flip",
    );
    flip(
        &|image| vertical.apply(image, &mut stream(0)).unwrap(),
        "vertical_flip",
    );
}

#[test]
fn rotations_are_pillows() {
    check("rotate_30", Rotation::new(30.));
    check(
        "rotate_30_bilinear",
        Rotation {
            interpolation: Interpolation::Bilinear,
            ..Rotation::new(30.)
        },
    );
    check(
        "rotate_30_bicubic",
        Rotation {
            interpolation: Interpolation::Bicubic,
            ..Rotation::new(30.)
        },
    );
    check(
        "rotate_expand",
        Rotation {
            expand: true,
            fill: 9,
            ..Rotation::new(-20.)
        },
    );
}

#[test]
fn affine_maps_are_pillows() {
    let affine = Affine {
        angle: 15.,
        translate: [7., -4.],
        scale: 1.2,
        shear: [10., -5.],
        fill: 40,
        ..Affine::default()
    };
    check("affine", affine);
    check(
        "affine_bilinear",
        Affine {
            scale: 0.8,
            fill: 0,
            interpolation: Interpolation::Bilinear,
            ..affine
        },
    );
    check(
        "affine_bicubic",
        Affine {
            scale: 0.8,
            fill: 0,
            interpolation: Interpolation::Bicubic,
            ..affine
        },
    );
}

/// A crop as large as the padded picture can lie in one place only.
#[test]
fn padding_is_torchvisions() {
    for (name, padding_mode) in [
        ("pad_constant", PaddingMode::Constant(17)),
        ("pad_edge", PaddingMode::Edge),
        ("pad_reflect", PaddingMode::Reflect),
        ("pad_symmetric", PaddingMode::Symmetric),
    ] {
        let crop = RandomCrop {
            padding: [3, 4, 5, 6],
            padding_mode,
            ..RandomCrop::new([61 + 4 + 6, 83 + 3 + 5])
        };
        let found = crop.apply(stored("picture"), &mut stream(0)).unwrap();
        compare(name, &found, 0);
    }
}

#[test]
fn colours_are_torchvisions() {
    let check = |name, tolerance, change: &dyn Fn(&mut Image)| {
        let mut image = stored("picture");
        change(&mut image);
        compare(name, &image, tolerance);
    };
    check("brightness", 2, &|i| functional::adjust_brightness(i, 1.4));
    check("contrast", 2, &|i| functional::adjust_contrast(i, 0.6));
    check("saturation", 2, &|i| functional::adjust_saturation(i, 1.7));
    check("hue", 2, &|i| functional::adjust_hue(i, 0.2));
    check("hue_back", 2, &|i| functional::adjust_hue(i, -0.35));
    check("sharpness", 2, &|i| functional::adjust_sharpness(i, 1.9));
    check("smoothness", 2, &|i| functional::adjust_sharpness(i, 0.1));
    check("grayscale", 1, &functional::rgb_to_grayscale);
    check("posterize", 0, &|i| functional::posterize(i, 3));
    check("solarize", 0, &|i| functional::solarize(i, 128.));
    check("autocontrast", 1, &functional::autocontrast);
    check("equalize", 1, &functional::equalize);
}

#[test]
fn tensors_and_normalisation_are_torchvisions() {
    let imagenet = Normalize {
        mean: vec![0.485, 0.456, 0.406],
        std: vec![0.229, 0.224, 0.225],
    };
    let found = pipeline()
        .to_tensor()
        .normalize(imagenet)
        .apply_fixed(stored("picture"))
        .unwrap();
    assert_eq!(found.shape(), [3, 61, 83]);
    let bytes = std::fs::read(folder().join("normalized.f32")).unwrap();
    let (expected, _) = bytes.as_chunks::<4>();
    for (place, expected) in expected.iter().enumerate() {
        let (c, y, x) = (place / 80, place / 10 % 8, place % 10);
        let found = found.values()[(c * 61 + y) * 83 + x];
        let expected = f32::from_le_bytes(*expected);
        assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
    }
}
