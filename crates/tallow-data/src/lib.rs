#![doc = include_str!("../README.md")]

mod augment;
mod batch;
pub mod datasets;
mod error;
mod image;
mod image_dataset;
mod loader;
mod normalize;
pub mod pipe;
pub mod source;
pub mod transform;

pub use augment::Augment;
pub use batch::{Batch, BatchSource, Batches};
pub use error::{Error, FileProblem, Result};
pub use image::Image;
pub use image_dataset::ImageDataset;
pub use loader::{Epoch, Loader, LoaderConfig, LoaderState, LoaderStats, OnError, Row};
pub use normalize::Normalize;
pub use pipe::Pipe;
pub use source::{Dataset, ImageFolder, Pass, Shard, Source, TarShards};
