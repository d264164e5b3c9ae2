//! Files made to do harm, and files damaged at random: an error or the right data, never a panic, never memory that
//! only a header asks for.

use std::path::Path;

use crate::written::{cifar, cifar10_files, gzip, idx, pixels, write};
use proptest::collection::vec;
use proptest::prelude::*;
use tallow_data::{Error, FileProblem, ImageDataset, Result, datasets};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn load(folder: &Path, images: &[u8], labels: &[u8]) -> Result<ImageDataset> {
    let images = write(folder, "images", images);
    let labels = write(folder, "labels", labels);
    datasets::idx::load(images, labels, NAMES)
}

fn good_images() -> Vec<u8> {
    idx(&[3, 4, 5], &pixels(60))
}

fn good_labels() -> Vec<u8> {
    idx(&[3], &[0, 1, 2])
}

/// Sets some bytes of a file; places are taken modulo its length.
fn damage(bytes: &mut [u8], changes: &[(usize, u8)]) {
    for &(place, value) in changes {
        let place = place % bytes.len();
        bytes[place] = value;
    }
}

/// A result is an error that names one of the files, or data that hangs together.
fn check_sound(result: &Result<ImageDataset>) {
    match result {
        Ok(data) => {
            let size: usize = data.image_shape().iter().product();
            assert_eq!(data.pixels().len(), data.len() * size);
            assert!(
                data.labels()
                    .iter()
                    .all(|&label| (label as usize) < data.class_names().len())
            );
        }
        Err(Error::File { path, .. }) => assert!(path.is_absolute(), "{}", path.display()),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_header_that_promises_the_world_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let most = u32::MAX;
    for dims in [
        [most, 28, 28],
        [1 << 20, 1 << 10, 1 << 10],
        [most, 1, 1],
        [most; 3],
        [2, most, most],
    ] {
        let images = idx(&dims, &pixels(60));
        for images in [gzip(&images), images] {
            let error = load(folder.path(), &images, &good_labels()).unwrap_err();
            let Error::File { problem, .. } = &error else {
                panic!("{error:?}")
            };
            assert!(
                matches!(
                    problem,
                    FileProblem::Truncated { .. } | FileProblem::TooLarge { .. }
                ),
                "{error}"
            );
        }
    }
    let labels = gzip(&idx(&[most], &[0]));
    let error = load(folder.path(), &good_images(), &labels).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("truncated: 4294967303 bytes expected, 9 found"),
        "{error}"
    );
}

#[test]
fn a_small_packed_file_of_many_bytes_is_read_no_further_than_needed() {
    // 60 MB of zeros in 60 kB.
    let zeros = gzip(&vec![0; 60 << 20]);
    let folder = tempfile::tempdir().unwrap();
    let error = load(folder.path(), &zeros, &good_labels()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::File {
                problem: FileProblem::ElementType { .. },
                ..
            }
        ),
        "{error:?}"
    );

    let long = gzip(&[good_images(), vec![0; 60 << 20]].concat());
    let error = load(folder.path(), &long, &good_labels()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::File {
                problem: FileProblem::TrailingData {
                    expected: 76,
                    found: 77
                },
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_cifar_file_of_more_images_than_there_are_is_not_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "train.bin", &gzip(&vec![0; 61_000 * 3074]));
    write(folder.path(), "test.bin", &cifar(&[&[0, 0]]));
    let error = datasets::cifar100::load(folder.path()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::File {
                problem: FileProblem::TrailingData {
                    expected: 184_440_000,
                    ..
                },
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn every_truncation_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (images, labels) = (good_images(), good_labels());
    load(folder.path(), &images, &labels).unwrap();
    let packed = gzip(&images);
    load(folder.path(), &packed, &labels).unwrap();
    for len in 0..images.len() {
        check_sound(&Err(
            load(folder.path(), &images[..len], &labels).unwrap_err()
        ));
    }
    for len in 0..packed.len() {
        check_sound(&Err(
            load(folder.path(), &packed[..len], &labels).unwrap_err()
        ));
    }
    for len in 0..labels.len() {
        check_sound(&Err(
            load(folder.path(), &images, &labels[..len]).unwrap_err()
        ));
    }
}

#[test]
fn every_change_of_a_header_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for place in 0..16 {
        for value in [0, 1, 2, 5, 8, 0x0d, 0x7f, 0xff] {
            let mut images = good_images();
            if images[place] != value {
                images[place] = value;
                check_sound(&Err(
                    load(folder.path(), &images, &good_labels()).unwrap_err()
                ));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn damaged_idx_files_do_no_harm(changes in vec((any::<usize>(), any::<u8>()), 1..6), in_labels: bool) {
        let folder = tempfile::tempdir().unwrap();
        let (mut images, mut labels) = (good_images(), good_labels());
        damage(if in_labels { &mut labels } else { &mut images }, &changes);
        check_sound(&load(folder.path(), &images, &labels));
    }

    #[test]
    fn damaged_packed_files_are_errors_or_hold_the_same_data(changes in vec((any::<usize>(), any::<u8>()), 1..4)) {
        let folder = tempfile::tempdir().unwrap();
        let mut images = gzip(&good_images());
        damage(&mut images, &changes);
        let result = load(folder.path(), &images, &good_labels());
        check_sound(&result);
        // The gzip checksum: what can be unpacked at all is what was packed.
        if let Ok(data) = result {
            prop_assert_eq!(data.pixels(), pixels(60));
        }
    }

    #[test]
    fn any_bytes_at_all_do_no_harm(images in vec(any::<u8>(), 0..200), labels in vec(any::<u8>(), 0..50)) {
        let folder = tempfile::tempdir().unwrap();
        check_sound(&load(folder.path(), &images, &labels));
    }

    #[test]
    fn damaged_or_truncated_cifar_files_do_no_harm(
        changes in vec((any::<usize>(), any::<u8>()), 0..4), which in 0usize..6, len in 0usize..7000, packed: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (i, (name, mut bytes)) in cifar10_files().into_iter().enumerate() {
            if i == which {
                bytes = if packed { gzip(&bytes) } else { bytes };
                damage(&mut bytes, &changes);
                bytes.truncate(len);
            }
            write(folder.path(), &name, &bytes);
        }
        match datasets::cifar10::load(folder.path()) {
            Ok((train, test)) => {
                check_sound(&Ok(train));
                check_sound(&Ok(test));
            }
            Err(error) => check_sound(&Err(error)),
        }
    }
}
