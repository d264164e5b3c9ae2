#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | holds |
//! |---|---|
//! | [`inference`], [`step`] | compiled models and compiled training steps, as callers use them |
//! | [`program`] | compiled graphs that no model stands behind |
//! | [`explain`](mod@explain) | what compilation makes of a model, as data and as text |
//! | [`options`], [`metrics`] | what compilation may do; what it did |
//! | `gradient` | the backward pass as a graph transformation |
//! | `passes` | the rewritings, one file each, and their order |
//! | `lower`, `plan`, `choose` | graph to kernel calls; their memory and running them; which algorithm |
//! | `eager` | modules that run as they are, in the middle of a plan |
//! | [`interpret`](mod@interpret) | the eager reference |
//! | [`error`] | what can go wrong |
//!
//! This crate knows no layers and no trainer.

mod bind;
mod cache;
mod choose;
mod compiler;
mod eager;
pub mod error;
pub mod explain;
mod gradient;
pub mod inference;
pub mod interpret;
mod lower;
pub mod metrics;
pub mod options;
mod passes;
mod plan;
pub mod program;
mod rewrite;
pub mod step;

pub use error::{Error, Result};
pub use explain::{Explanation, explain, explain_step};
pub use inference::{Compiled, InferenceCompiler, compile};
pub use interpret::interpret;
pub use metrics::{KernelTime, Metrics};
pub use options::{Mode, Options, Precision};
pub use passes::names as pass_names;
pub use plan::Memory;
pub use program::{CompiledGraph, Weight, compile_graph};
pub use step::{Step, StepCompiler};
