//! Fashion-MNIST: pieces of clothing, 60,000 for training and 10,000 for testing, grey, 28x28 (Xiao et al. 2017,
//! arXiv:1708.07747).

use std::path::Path;

use super::folder::Origin;
use super::mnist;
use crate::{ImageDataset, Result};

const ORIGIN: Origin = Origin {
    what: "Fashion-MNIST",
    subfolder: "FashionMNIST/raw",
    files: mnist::FILES,
    source_hint: "They can be had from https://github.com/zalandoresearch/fashion-mnist, with torchvision, or as \
                  Debian's package dataset-fashion-mnist (in /usr/share/datasets/fashion-mnist).",
};

/// The kinds of clothing.
pub const CLASS_NAMES: [&str; 10] = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
];

/// Reads `(train, test)` from a folder of the four original files.
///
/// The files have MNIST's names: see [`mnist::load`]. `folder` may also be the one that was given to torchvision,
/// which puts them in `FashionMNIST/raw`.
///
/// # Errors
///
/// As those of [`mnist::load`].
pub fn load(folder: impl AsRef<Path>) -> Result<(ImageDataset, ImageDataset)> {
    mnist::load_like(&ORIGIN, folder.as_ref(), CLASS_NAMES)
}
