#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | file | holds |
//! |---|---|
//! | `trainer.rs` and `trainer/` | [`Trainer`]: settings, the loop, one step, evaluation, what to say about a NaN |
//! | `hook.rs` | [`Hook`] and [`HookContext`] |
//! | `optimizer.rs` and `optimizer/` | [`Optimizer`], [`AdamW`], [`Sgd`], [`OptimizerState`] |
//! | `schedule.rs` | [`LrSchedule`] |
//! | `loss.rs` | [`Loss`] |
//! | `metrics.rs` and `metrics/`, `history.rs` | [`metrics`], [`History`] |
//! | `checkpoint.rs` and `checkpoint/` | [`Checkpointing`], the file format |
//! | `hooks/` | [`hooks`]: checkpoints kept, early stopping, logs, limits, guards, run folders |
//! | `progress.rs` | [`ProgressDisplay`] |
//! | `error.rs` | [`Error`] |

mod checkpoint;
mod error;
mod history;
mod hook;
pub mod hooks;
mod loss;
pub mod metrics;
mod optimizer;
mod progress;
mod schedule;
mod trainer;

pub use checkpoint::Checkpointing;
pub use error::{BadValue, CheckpointProblem, Error, Result};
pub use history::{EpochRecord, History};
pub use hook::{Hook, HookContext};
pub use loss::{CrossEntropyConfig, Loss};
pub use optimizer::{AdamW, Optimizer, OptimizerState, ParameterState, Sgd};
pub use progress::ProgressDisplay;
pub use schedule::{Anneal, LrSchedule};
pub use trainer::{Trainer, TrainerBuilder};
