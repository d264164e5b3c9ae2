//! MNIST: handwritten digits, 60,000 for training and 10,000 for testing, grey, 28x28 (LeCun et al. 1998).

use std::path::Path;

use super::folder::Origin;
use super::idx;
use super::source::Source;
use crate::{ImageDataset, Result};

const ORIGIN: Origin = Origin {
    what: "MNIST",
    subfolder: "MNIST/raw",
    files: FILES,
    source_hint: "They can be had from https://huggingface.co/datasets/ylecun/mnist or with torchvision.",
};

pub(super) const FILES: &[&str] = &[
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

pub(super) const IMAGE_SIZE: [usize; 2] = [28, 28];

/// The digits.
pub const CLASS_NAMES: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// Reads `(train, test)` from a folder of the four original files.
///
/// The files are called `train-images-idx3-ubyte` or `train-images.idx3-ubyte` and so on, each as it is or as
/// `.gz`. `folder` may also be the one that was given to torchvision, which puts them in `MNIST/raw`.
///
/// # Errors
///
/// [`Error::MissingFolder`](crate::Error::MissingFolder) or [`Error::MissingFile`](crate::Error::MissingFile),
/// [`Error::Io`](crate::Error::Io) if a file can't be read, [`Error::File`](crate::Error::File) if it does not hold
/// what it should.
pub fn load(folder: impl AsRef<Path>) -> Result<(ImageDataset, ImageDataset)> {
    load_like(&ORIGIN, folder.as_ref(), CLASS_NAMES)
}

/// Reads any data set with MNIST's files and image size.
pub(super) fn load_like(
    origin: &Origin,
    folder: &Path,
    class_names: [&str; 10],
) -> Result<(ImageDataset, ImageDataset)> {
    let folder = origin.folder(folder)?;
    let find = |part: &str, kind: &str| {
        let names = ["-", "."].map(|separator| format!("{part}{separator}{kind}-ubyte"));
        origin.file(&folder, &names.each_ref().map(String::as_str))
    };
    let load = |part: &str| {
        let images = find(&format!("{part}-images"), "idx3")?;
        let labels = find(&format!("{part}-labels"), "idx1")?;
        let names = class_names.map(str::to_owned).to_vec();
        idx::pair(
            Source::open(&images)?,
            Source::open(&labels)?,
            Some(IMAGE_SIZE),
            names,
        )
    };
    Ok((load("train")?, load("t10k")?))
}
