#![doc = include_str!("../README.md")]

mod batch;
mod error;
pub mod pipe;

pub use batch::{Batch, BatchSource, Batches};
pub use error::{Error, FileProblem, Result};
pub use pipe::Pipe;
