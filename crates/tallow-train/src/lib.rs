#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | file | holds |
//! |---|---|
//! | `trainer.rs` and `trainer/` | [`Trainer`]: settings, the loop, one step, evaluation, what to say about a NaN |
//! | `hook.rs` | [`Hook`] and [`HookContext`] |
//! | `optimizer.rs` and `optimizer/` | [`Optimizer`], [`AdamW`], [`Sgd`], [`Lamb`], [`Muon`], [`ParamGroups`], [`OptimizerState`] |
//! | `clip.rs`, `ema.rs` | [`GradientClip`], averaged weights: [`Ema`] |
//! | `schedule.rs` and `schedule/` | [`LrSchedule`], [`ReduceOnPlateau`], [`LrSchedulerHook`] |
//! | `lr_finder.rs` and `lr_finder/` | [`LrFinder`], [`LrCurve`] |
//! | `loss.rs` | [`Loss`] |
//! | `metrics.rs` and `metrics/`, `history.rs` | [`metrics`], [`History`] |
//! | `checkpoint.rs` and `checkpoint/` | [`Checkpointing`], the file format |
//! | `distributed.rs` and `distributed/` | [`distributed`]: several ranks that train one model |
//! | `hooks/` | [`hooks`]: checkpoints kept, early stopping, logs, limits, guards, run folders |
//! | `progress.rs` | [`ProgressDisplay`] |
//! | `error.rs` | [`Error`] |

mod checkpoint;
mod clip;
pub mod distributed;
mod ema;
mod error;
mod history;
mod hook;
pub mod hooks;
mod loss;
mod lr_finder;
pub mod metrics;
mod optimizer;
mod progress;
mod schedule;
mod trainer;

pub use checkpoint::Checkpointing;
pub use clip::{GradientClip, clip_grad_norm, clip_grad_value, grad_norm};
pub use ema::{Ema, EmaConfig};
pub use error::{BadValue, CheckpointProblem, Error, Result};
pub use history::{EpochRecord, History};
pub use hook::{Hook, HookContext};
pub use loss::{CrossEntropyConfig, Loss};
pub use lr_finder::{LrCurve, LrFinder, LrPoint};
pub use optimizer::{
    AdamW, GroupOptions, Lamb, Muon, MuonAdjustment, Optimizer, OptimizerState, ParamGroup,
    ParamGroups, ParameterState, Sgd,
};
pub use progress::ProgressDisplay;
pub use schedule::{Anneal, LrSchedule, LrSchedulerHook, ReduceOnPlateau, Watched};
pub use trainer::{Trainer, TrainerBuilder};
