//! The data set that is part of this crate: a subset of Fashion-MNIST, packed into the program.
//!
//! Made by `assets/make_fashion_mnist_subset.py`, and read by the same code as the files it comes from.

use super::source::Source;
use super::{fashion_mnist, idx, mnist};
use crate::{ImageDataset, Result};

macro_rules! asset {
    ($name:literal) => {
        (
            $name,
            include_bytes!(concat!("../../assets/", $name)).as_slice(),
        )
    };
}

const TRAIN: [(&str, &[u8]); 2] = [
    asset!("fashion-mnist-subset-train-images-idx3-ubyte.gz"),
    asset!("fashion-mnist-subset-train-labels-idx1-ubyte.gz"),
];
const TEST: [(&str, &[u8]); 2] = [
    asset!("fashion-mnist-subset-t10k-images-idx3-ubyte.gz"),
    asset!("fashion-mnist-subset-t10k-labels-idx1-ubyte.gz"),
];

/// `(train, test)`: 8,000 and 1,000 images of Fashion-MNIST, 800 and 100 of each class, out of its training and test
/// part. Needs no file.
///
/// The classes take turns, so that any first part of the images ([`ImageDataset::take`]) is balanced as well.
/// Fashion-MNIST is copyright 2017 Zalando SE, under the MIT licence (`assets/LICENSE-fashion-mnist`).
///
/// # Errors
///
/// [`Error::File`](crate::Error::File) if the program's own bytes are damaged.
pub fn fashion_mnist_subset() -> Result<(ImageDataset, ImageDataset)> {
    let load = |[images, labels]: [(&str, &'static [u8]); 2]| {
        let names = fashion_mnist::CLASS_NAMES.map(str::to_owned).to_vec();
        let images = Source::from_bytes(images.0, images.1)?;
        idx::pair(
            images,
            Source::from_bytes(labels.0, labels.1)?,
            Some(mnist::IMAGE_SIZE),
            names,
        )
    };
    Ok((load(TRAIN)?, load(TEST)?))
}
