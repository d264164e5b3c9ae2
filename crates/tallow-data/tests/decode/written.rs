//! Small files of every kind, written by Pillow (`golden/make_decode_seeds.py`), against what Pillow reads from them.

use std::path::{Path, PathBuf};

use tallow_data::decode::{self, Channels, DecodeOptions};
use tallow_data::{Error, Image};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/decode")
        .join(name)
}

fn open(name: &str, options: DecodeOptions) -> Image {
    decode::open(path(name), &options).unwrap()
}

/// Compares with the stored `convert("RGB")`.
fn check(name: &str, tolerance: u8) {
    let image = open(name, DecodeOptions::rgb());
    let stem = Path::new(name).with_extension("");
    let expected = std::fs::read(path(&format!("{}.rgb", stem.display()))).unwrap();
    assert_eq!(image.values().len(), expected.len(), "{name}");
    let worst = expected
        .iter()
        .zip(image.values())
        .map(|(a, b)| a.abs_diff(*b))
        .max();
    assert!(worst <= Some(tolerance), "{name}: off by {worst:?}");
}

#[test]
fn lossless_files_are_read_to_the_bit() {
    for name in [
        "rgb.png",
        "grey.png",
        "rgba.png",
        "grey_alpha.png",
        "palette.png",
        "grey16.png",
        "bilevel.png",
        "gif.gif",
        "bmp.bmp",
        "lossless.webp",
        "lossless_alpha.webp",
    ] {
        check(name, 0);
    }
}

#[test]
fn lossy_files_are_read_within_2_of_255() {
    check("cmyk.jpg", 2);
    check("lossy.webp", 2);
    // The decoder that Pillow uses gives what Pillow gives.
    let same = cfg!(feature = "turbojpeg");
    for name in ["baseline.jpg", "progressive.jpg", "grey_jpeg.jpg"] {
        check(name, if same { 0 } else { 2 });
    }
    // Where colours are subsampled, a difference of 2 in them can become one of 4.
    check("subsampled.jpg", if same { 0 } else { 4 });
}

/// A fraction of the size is the average of what it stands for, or the whole size where only that is long enough.
#[test]
fn jpegs_are_decoded_at_a_fraction_of_their_size_on_request() {
    let whole = open("baseline.jpg", DecodeOptions::rgb());
    let short = whole.height().min(whole.width());
    let fraction = |least| {
        let options = DecodeOptions {
            jpeg_min_side: Some(least),
            ..DecodeOptions::rgb()
        };
        open("baseline.jpg", options)
    };
    assert_eq!(fraction(short), whole);
    let half = fraction(short.div_ceil(2));
    if cfg!(feature = "turbojpeg") {
        let size = [whole.height().div_ceil(2), whole.width().div_ceil(2)];
        assert_eq!([half.height(), half.width()], size);
        // Of whole blocks, which keep their average.
        let mean = |image: &Image, [height, width]: [usize; 2]| {
            let places = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
            let values = places
                .flat_map(|(y, x)| image.pixel(y, x))
                .copied()
                .map(f64::from);
            values.sum::<f64>() / (3 * height * width) as f64
        };
        let blocks = [whole.height() / 16 * 16, whole.width() / 16 * 16];
        let means = [
            mean(&whole, blocks),
            mean(&half, blocks.map(|side| side / 2)),
        ];
        assert!((means[0] - means[1]).abs() < 2., "{means:?}");
    } else {
        assert_eq!(half, whole);
    }
}

#[test]
fn grey_files_stay_grey_unless_colour_is_asked_for() {
    let as_is = DecodeOptions::default();
    for (name, channels) in [
        ("grey_jpeg.jpg", 1),
        ("grey.png", 1),
        ("grey_alpha.png", 1),
        ("rgb.png", 3),
        ("rgba.png", 3),
    ] {
        assert_eq!(open(name, as_is).channels(), channels, "{name}");
        assert_eq!(open(name, DecodeOptions::rgb()).channels(), 3, "{name}");
        assert_eq!(open(name, DecodeOptions::grey()).channels(), 1, "{name}");
    }
    let (grey, rgb) = (
        open("rgb.png", DecodeOptions::grey()),
        open("rgb.png", as_is),
    );
    let [r, g, b] = [0, 1, 2].map(|c| f64::from(rgb.values()[c]));
    assert!((f64::from(grey.values()[0]) - (0.299 * r + 0.587 * g + 0.114 * b)).abs() <= 0.51);
}

#[test]
fn orientation_is_applied_on_request() {
    let turned = DecodeOptions {
        exif_orientation: true,
        ..DecodeOptions::rgb()
    };
    let plain = open("orientation_6.jpg", DecodeOptions::rgb());
    for (name, place) in [
        // Where the upper left pixel of the stored picture goes.
        ("orientation_2.jpg", (0, plain.width() - 1)),
        ("orientation_3.jpg", (plain.height() - 1, plain.width() - 1)),
        ("orientation_4.jpg", (plain.height() - 1, 0)),
        ("orientation_5.jpg", (0, 0)),
        ("orientation_6.jpg", (0, plain.height() - 1)),
        ("orientation_7.jpg", (plain.width() - 1, plain.height() - 1)),
        ("orientation_8.jpg", (plain.width() - 1, 0)),
    ] {
        let image = open(name, turned);
        assert_eq!(image.pixel(place.0, place.1), plain.pixel(0, 0), "{name}");
        assert_eq!(image.values().len(), plain.values().len());
    }
}

#[test]
fn errors_name_the_file_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.png");
    let error = decode::open(&missing, &DecodeOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }) && error.to_string().contains("missing.png"));
    let damaged = folder.path().join("damaged.png");
    std::fs::write(&damaged, b"\x89PNG\r\n\x1a\nnonsense").unwrap();
    let message = decode::open(
        &damaged,
        &DecodeOptions {
            channels: Channels::Rgb,
            ..DecodeOptions::default()
        },
    )
    .unwrap_err()
    .to_string();
    assert!(
        message.contains("damaged.png") && message.contains("PNG") && message.contains("fetch"),
        "{message}"
    );
}
