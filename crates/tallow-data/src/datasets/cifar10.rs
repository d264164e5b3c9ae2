//! CIFAR-10: photos of ten kinds of things, 50,000 for training and 10,000 for testing, colour, 32x32
//! (Krizhevsky 2009).

use std::path::Path;

use super::cifar_records::{self, Layout};
use super::folder::Origin;
use crate::{ImageDataset, Result};

const ORIGIN: Origin = Origin {
    what: "CIFAR-10",
    subfolder: "cifar-10-batches-bin",
    files: &[
        "data_batch_1.bin",
        "data_batch_2.bin",
        "data_batch_3.bin",
        "data_batch_4.bin",
        "data_batch_5.bin",
        "test_batch.bin",
    ],
    source_hint: "They are in https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz \
                  (the binary version, not Python's).",
};

const LAYOUT: Layout = Layout {
    classes: &[CLASS_NAMES.len()],
    label: 0,
    description: "a label and a 3x32x32 image",
};

/// The kinds of things.
pub const CLASS_NAMES: [&str; 10] = [
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
];

/// Reads `(train, test)` from the folder of the "binary version": `data_batch_1.bin` to `data_batch_5.bin` and
/// `test_batch.bin`.
///
/// `folder` may also be the one where the archive was unpacked, which makes `cifar-10-batches-bin` in it.
///
/// # Errors
///
/// [`Error::MissingFolder`](crate::Error::MissingFolder) or [`Error::MissingFile`](crate::Error::MissingFile),
/// [`Error::Io`](crate::Error::Io) if a file can't be read, [`Error::File`](crate::Error::File) if it does not hold
/// whole records, or a label is out of range.
pub fn load(folder: impl AsRef<Path>) -> Result<(ImageDataset, ImageDataset)> {
    let folder = ORIGIN.folder(folder.as_ref())?;
    let paths = ORIGIN
        .files
        .iter()
        .map(|name| ORIGIN.file(&folder, &[name]));
    let paths = paths.collect::<Result<Vec<_>>>()?;
    let (train, test) = paths.split_at(paths.len() - 1);
    let load = |paths| cifar_records::load(paths, &LAYOUT, &CLASS_NAMES);
    Ok((load(train)?, load(test)?))
}
