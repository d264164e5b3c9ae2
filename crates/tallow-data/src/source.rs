//! Where samples come from: [`Dataset`], samples by number, and [`Source`], samples in an order.
//!
//! A data set only has to know how many samples it has and how to get one; every [`Dataset`] is a [`Source`]. What can't
//! be reached by number is a source of its own: it gives cheap items one after the other ([`Source::items`]), and the
//! loader's workers make samples of them ([`Source::load`]), in parallel and in no particular order.
//!
//! | source | samples |
//! |---|---|
//! | [`ImageFolder`] | files in a folder a class, as torchvision's `ImageFolder` |
//! | [`ImageDataset`](crate::ImageDataset) | in memory: idx files, CIFAR, your own |
//! | [`TarShards`] | tar files in WebDataset's form |
#![cfg_attr(
    feature = "parquet",
    doc = "| [`Parquet`] | Parquet files as the Hugging Face hub stores images |"
)]
//! | [`stream`] | any iterator |
//! | [`list`] | values in memory |
//! | your own type | a [`Dataset`] |
//!
//! Left to others: batches and threads ([`Loader`](crate::Loader)), reading what an encoded image shows
//! ([`decode`](mod@crate::decode)).

mod dataset;
mod decoding;
mod folder;
#[cfg(feature = "parquet")]
mod parquet;
mod pass;
mod split;
mod stream;
mod tar;

pub use dataset::{Dataset, List, list};
pub use folder::ImageFolder;
#[cfg(feature = "parquet")]
pub use parquet::{Parquet, ParquetRow};
pub use pass::{Pass, Shard};
pub use stream::{Streamed, stream};
pub use tar::{TarEntry, TarShards};

use crate::Result;

/// The items of an epoch, in order. An `Err` stands for one item that could not be read.
pub type Items<I> = Box<dyn Iterator<Item = Result<I>> + Send>;

/// Samples in an order: what a [`Loader`](crate::Loader) reads.
///
/// Implement [`Dataset`] instead if samples can be reached by number.
///
/// Reading has two parts. [`items`](Self::items) runs on one thread at a time and should be cheap: the place of a file
/// rather than what is in it. [`load`](Self::load) runs on all workers and does the work.
pub trait Source: Send + Sync + 'static {
    /// What stands for a sample before it is loaded.
    type Item: Send + 'static;
    /// What a sample is; `(Image, u32)`, an image and its class, where a [`Pipeline`](crate::transform::Pipeline) follows.
    type Sample;

    /// The items of one pass over the samples. They depend on the source and on `pass` alone.
    ///
    /// # Errors
    ///
    /// What keeps the pass from starting.
    fn items(&self, pass: &Pass) -> Result<Items<Self::Item>>;

    /// Makes a sample of an item.
    ///
    /// # Errors
    ///
    /// Why there is no sample; the loader adds what [`describe`](Self::describe) says.
    fn load(&self, item: Self::Item) -> Result<Self::Sample>;

    /// The item in words, for messages: its file, or its name.
    fn describe(&self, item: &Self::Item) -> String;

    /// How many items a pass has, if that is known beforehand.
    fn len_hint(&self, pass: &Pass) -> Option<usize> {
        let _ = pass;
        None
    }

    /// The number that a sample's random changes are keyed with, so that they don't depend on where the order puts it.
    /// `None`, for samples without one, takes its place in the order of the epoch.
    fn key(&self, item: &Self::Item) -> Option<u64> {
        let _ = item;
        None
    }
}

impl<D: Dataset + 'static> Source for D {
    type Item = usize;
    type Sample = D::Sample;

    fn items(&self, pass: &Pass) -> Result<Items<usize>> {
        Ok(Box::new(pass.order(self.len()).into_iter().map(Ok)))
    }

    fn load(&self, index: usize) -> Result<D::Sample> {
        self.get(index)
    }

    fn describe(&self, index: &usize) -> String {
        Dataset::describe(self, *index)
    }

    fn len_hint(&self, pass: &Pass) -> Option<usize> {
        Some(pass.share(self.len()))
    }

    fn key(&self, index: &usize) -> Option<u64> {
        Some(*index as u64)
    }
}
