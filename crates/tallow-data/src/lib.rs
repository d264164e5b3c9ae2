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
pub mod transform;

pub use augment::Augment;
pub use batch::{Batch, BatchSource, Batches, Mix};
pub use error::{Error, FileProblem, Result};
pub use image::Image;
pub use image_dataset::ImageDataset;
pub use loader::{Loader, LoaderConfig};
pub use normalize::Normalize;
pub use pipe::Pipe;
