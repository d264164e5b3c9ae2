#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | holds |
//! |---|---|
//! | [`op`] | the vocabulary: [`Op`], one struct an operation with its shape rule and its cost |
//! | [`graph`] | [`Graph`], [`Node`], building and counting |
//! | [`verify`](Graph::verify) | the rules that a graph must keep |
//! | [`types`] | [`DType`] and [`TensorType`] |
//! | [`error`] | [`ShapeError`] and [`GraphError`] |
//!
//! This crate executes nothing and knows nothing of tensors: it names operations and says what they
//! give and cost. Running them is left to `tallow-tensor` (eager) and to the compiler.

pub mod error;
pub mod graph;
pub mod op;
mod text;
pub mod types;
mod verify;

pub use error::{GraphError, ShapeError};
pub use graph::{Graph, Node, NodeId};
pub use op::Op;
pub use types::{DType, TensorType};
