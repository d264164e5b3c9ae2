#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | holds |
//! |---|---|
//! | [`ops`] | the operations, with right gradients |
//! | [`inplace`], [`update`] | updates of variables in place, and those of optimizers |
//! | [`no_grad`], [`nonfinite`] | running without a tape, and finding the origin of a NaN |
//! | [`params`] | named, ordered parameters and buffers, their initial values and their files |
//! | [`rng`] | random numbers as functions of a key |
//! | [`scope`], [`trace`] | which module is running; what profilers see |
//! | [`record`], [`capture()`] | a graph from a run of a model |
//! | [`opaque`] | modules that may run as they are inside a graph |
//! | [`convert`] | candle's types as the graph names them |
//! | [`sync`] | batch norm over the batches of several ranks |
//! | [`memory`], [`environment`] | a hint to the allocator; the machine, and what this build makes of it |
//! | [`error`] | what can go wrong |
//!
//! This crate knows no layers: those are in `tallow-nn`.

pub mod capture;
pub mod convert;
pub mod environment;
pub mod error;
pub mod inplace;
pub mod memory;
pub mod no_grad;
pub mod nonfinite;
pub mod opaque;
pub mod ops;
pub mod params;
pub mod record;
pub mod rng;
pub mod scope;
pub mod sync;
pub mod trace;
pub mod update;

pub use capture::{Break, Capture, Captured, capture, capture_model};
pub use error::{Error, Result};
pub use opaque::OpaqueModule;
pub use params::Params;
pub use tallow_graph as graph;
