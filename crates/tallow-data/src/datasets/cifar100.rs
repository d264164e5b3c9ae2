//! CIFAR-100: photos of a hundred kinds of things, 50,000 for training and 10,000 for testing, colour, 32x32
//! (Krizhevsky 2009).
//!
//! The labels are the hundred fine ones; the twenty coarse ones are checked and left out.

use std::path::Path;

use super::cifar_records::{self, Layout};
use super::folder::Origin;
use crate::{ImageDataset, Result};

const ORIGIN: Origin = Origin {
    what: "CIFAR-100",
    subfolder: "cifar-100-binary",
    files: &["train.bin", "test.bin"],
    source_hint: "They are in https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz \
                  (the binary version, not Python's).",
};

const LAYOUT: Layout = Layout {
    classes: &[20, CLASS_NAMES.len()],
    label: 1,
    description: "a coarse label, a fine label and a 3x32x32 image",
};

/// Reads `(train, test)` from the folder of the "binary version": `train.bin` and `test.bin`.
///
/// `folder` may also be the one where the archive was unpacked, which makes `cifar-100-binary` in it.
///
/// # Errors
///
/// As those of [`cifar10::load`](super::cifar10::load).
pub fn load(folder: impl AsRef<Path>) -> Result<(ImageDataset, ImageDataset)> {
    let folder = ORIGIN.folder(folder.as_ref())?;
    let load = |name| cifar_records::load(&[ORIGIN.file(&folder, &[name])?], &LAYOUT, &CLASS_NAMES);
    Ok((load("train.bin")?, load("test.bin")?))
}

/// The kinds of things: the fine labels.
pub const CLASS_NAMES: [&str; 100] = [
    "apple",
    "aquarium_fish",
    "baby",
    "bear",
    "beaver",
    "bed",
    "bee",
    "beetle",
    "bicycle",
    "bottle",
    "bowl",
    "boy",
    "bridge",
    "bus",
    "butterfly",
    "camel",
    "can",
    "castle",
    "caterpillar",
    "cattle",
    "chair",
    "chimpanzee",
    "clock",
    "cloud",
    "cockroach",
    "couch",
    "crab",
    "crocodile",
    "cup",
    "dinosaur",
    "dolphin",
    "elephant",
    "flatfish",
    "forest",
    "fox",
    "girl",
    "hamster",
    "house",
    "kangaroo",
    "keyboard",
    "lamp",
    "lawn_mower",
    "leopard",
    "lion",
    "lizard",
    "lobster",
    "man",
    "maple_tree",
    "motorcycle",
    "mountain",
    "mouse",
    "mushroom",
    "oak_tree",
    "orange",
    "orchid",
    "otter",
    "palm_tree",
    "pear",
    "pickup_truck",
    "pine_tree",
    "plain",
    "plate",
    "poppy",
    "porcupine",
    "possum",
    "rabbit",
    "raccoon",
    "ray",
    "road",
    "rocket",
    "rose",
    "sea",
    "seal",
    "shark",
    "shrew",
    "skunk",
    "skyscraper",
    "snail",
    "snake",
    "spider",
    "squirrel",
    "streetcar",
    "sunflower",
    "sweet_pepper",
    "table",
    "tank",
    "telephone",
    "television",
    "tiger",
    "tractor",
    "train",
    "trout",
    "tulip",
    "turtle",
    "wardrobe",
    "whale",
    "willow_tree",
    "wolf",
    "woman",
    "worm",
];
