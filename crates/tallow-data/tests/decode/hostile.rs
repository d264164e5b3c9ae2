//! Bytes made to do harm, and seed files with bytes changed at random: an error or a picture, never a panic.
//!
//! `TALLOW_MUTATIONS` sets how many mutations are tried; 300 without it.

use std::path::PathBuf;

use tallow_data::decode::{self, Channels, DecodeOptions, Limits};
use tallow_data::{DecodeProblem, Error};
use tallow_tensor::rng::Stream;

fn seeds() -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/decode");
    let mut seeds: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension != "rgb"))
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    seeds.sort();
    assert!(seeds.len() >= 10);
    seeds
}

fn small() -> DecodeOptions {
    DecodeOptions {
        channels: Channels::AsIs,
        exif_orientation: true,
        limits: Limits {
            max_pixels: 1 << 20,
        },
        ..DecodeOptions::default()
    }
}

/// Changes, removes or repeats a few bytes.
fn mutate(bytes: &mut Vec<u8>, draw: &mut Stream) {
    for _ in 0..1 + draw.below(6) {
        let place = draw.below(bytes.len() as u64) as usize;
        match draw.below(8) {
            0..4 => bytes[place] = draw.next_u32() as u8,
            4 => bytes[place] ^= 1 << draw.below(8),
            5 => bytes[place] = [0, 0xff, 0x7f, 0x80][draw.below(4) as usize],
            6 => {
                let end = (place + draw.below(16) as usize).min(bytes.len());
                let piece = bytes[place..end].to_vec();
                bytes.splice(place..place, piece);
            }
            _ => bytes.truncate(place.max(16)),
        }
    }
}

#[test]
fn mutated_files_never_panic() {
    let count: u64 = std::env::var("TALLOW_MUTATIONS").map_or(300, |text| {
        text.parse().expect("TALLOW_MUTATIONS is a number")
    });
    let seeds = seeds();
    let mut read = 0;
    for number in 0..count {
        let mut draw = Stream::new(number);
        let (name, seed) = &seeds[number as usize % seeds.len()];
        let mut bytes = seed.clone();
        mutate(&mut bytes, &mut draw);
        match decode::decode(&bytes, &small()) {
            Ok(image) => {
                read += 1;
                assert!(
                    image.height() * image.width() <= 1 << 20,
                    "{name}, mutation {number}"
                );
            }
            Err(Error::Decode(_)) => {}
            Err(other) => panic!("{name}, mutation {number}: {other:?}"),
        }
    }
    eprintln!("{count} mutations: {read} read, the others refused");
}

#[test]
fn every_beginning_of_a_file_is_an_error_or_a_picture() {
    for (name, seed) in seeds() {
        for length in (0..seed.len()).step_by(1 + seed.len() / 60) {
            let result = decode::decode(&seed[..length], &small());
            assert!(
                !matches!(result, Err(ref error) if !matches!(error, Error::Decode(_))),
                "{name}"
            );
        }
    }
}

#[test]
fn a_jpeg_cut_in_half_is_an_error() {
    for (name, seed) in seeds() {
        if name.ends_with("baseline.jpg") || name.ends_with("progressive.jpg") {
            assert!(
                decode::decode(&seed[..seed.len() / 2], &small()).is_err(),
                "{name}"
            );
        }
    }
}

#[test]
fn a_header_that_promises_the_world_is_refused_by_the_limit() {
    for (name, seed) in seeds() {
        let options = DecodeOptions {
            limits: Limits { max_pixels: 100 },
            ..small()
        };
        let problem = decode::decode(&seed, &options);
        assert!(
            matches!(
                problem,
                Err(Error::Decode(DecodeProblem::TooManyPixels {
                    limit: 100,
                    ..
                }))
            ),
            "{name}: {problem:?}"
        );
    }
    // A PNG of 2^31 - 1 by 2^31 - 1 pixels, and a GIF of 65535 x 65535.
    let (_, png) = seeds()
        .into_iter()
        .find(|(name, _)| name.ends_with("rgb.png"))
        .unwrap();
    let mut png = png;
    png[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
    assert!(decode::decode(&png, &DecodeOptions::default()).is_err());
    let gif = b"GIF89a\xff\xff\xff\xff\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\xff\xff\xff\xff\0\x02\x02\x44\x01\0;";
    assert!(decode::decode(gif, &DecodeOptions::default()).is_err());
}

#[test]
fn a_frame_larger_than_its_picture_takes_no_memory() {
    let gif = b"GIF89a\x02\0\x02\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\xff\xff\xff\xff\0\x02\x02\x44\x01\0;";
    let _ = decode::decode(gif, &small());
    let (_, mut webp) = seeds()
        .into_iter()
        .find(|(name, _)| name.ends_with("lossy.webp"))
        .unwrap();
    let start = webp
        .windows(3)
        .position(|w| w == [0x9d, 0x01, 0x2a])
        .unwrap()
        + 3;
    webp[start..start + 4].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    let problem = decode::decode(&webp, &small());
    assert!(
        matches!(
            problem,
            Err(Error::Decode(DecodeProblem::TooManyPixels { .. }))
        ),
        "{problem:?}"
    );
}

#[test]
fn other_files_are_named_with_what_they_begin_with() {
    for bytes in [&b""[..], b"\xff", b"<html>", &[0; 64]] {
        let error = decode::decode(bytes, &small()).unwrap_err().to_string();
        assert!(
            error.contains("none of JPEG, PNG, WebP, GIF and BMP"),
            "{error}"
        );
    }
}
