//! Image data sets from local folders, and one that is part of this crate.
//!
//! | data set | images | files |
//! |---|---|---|
//! | [`fashion_mnist_subset`] | 8,000 + 1,000, 1x28x28 | none: embedded |
//! | [`mnist`], [`fashion_mnist`] | 60,000 + 10,000, 1x28x28 | four idx files, packed with gzip or not |
//! | [`cifar10`], [`cifar100`] | 50,000 + 10,000, 3x32x32 | the "binary version" |
//! | [`idx`] | any size | any pair of idx files, such as EMNIST's |
//!
//! Each `load(folder)` returns `(train, test)`. A file that is missing, damaged or of another data set is an error
//! that names the file, what was expected, what was found and what to do. Nothing is allocated on the word of a
//! header: memory grows with the data that is really there.
//!
//! The readers are our own, since those of `candle-datasets` don't name the file that fails, read no gzip, allocate
//! what a header promises, and take any byte for a label. Its download code is what the feature `download` uses.
//!
//! Batches are made by [`ImageDataset::loader`](crate::ImageDataset::loader).

pub mod cifar10;
pub mod cifar100;
mod cifar_records;
#[cfg(feature = "download")]
mod download;
mod embedded;
pub mod fashion_mnist;
mod folder;
pub mod idx;
pub mod mnist;
mod source;

#[cfg(feature = "download")]
pub use download::{Name, download};
pub use embedded::fashion_mnist_subset;
