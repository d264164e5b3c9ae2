#![doc = include_str!("../README.md")]

mod augment;
mod batch;
pub mod datasets;
pub mod decode;
mod error;
mod image;
mod image_dataset;
mod loader;
mod mixing;
mod normalize;
pub mod pipe;
pub mod source;
mod trace;
pub mod transform;

pub use augment::Augment;
pub use batch::{Batch, BatchSource, Batches, Mix};
pub use error::{DecodeProblem, Error, FileProblem, Result};
pub use image::Image;
pub use image_dataset::ImageDataset;
pub use loader::{Epoch, Loader, LoaderConfig, LoaderState, LoaderStats, OnError, Row};
pub use mixing::Mixing;
pub use normalize::Normalize;
pub use pipe::Pipe;
pub use source::{Dataset, ImageFolder, Pass, Shard, Source, TarShards};
