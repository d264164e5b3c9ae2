#![doc = include_str!("../README.md")]
//!
//! Each crate of the workspace under a short name. This crate has no code of its own; it declares the examples and
//! benches at the root of the repository.

pub use tallow_compile as compile;
pub use tallow_data as data;
pub use tallow_export as export;
pub use tallow_graph as graph;
pub use tallow_kernels as kernels;
pub use tallow_nn as nn;
pub use tallow_profile as profile;
pub use tallow_tensor as tensor;
pub use tallow_train as train;

pub mod prelude;
