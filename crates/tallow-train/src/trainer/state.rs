//! Where a training stands: [`Position`] and [`Memory`], which a checkpoint holds, and [`State`], which hooks see.

use std::collections::BTreeMap;
use std::path::PathBuf;

use candle_core::Tensor;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tallow_tensor::Params;

use crate::distributed::Ranks;
use crate::metrics::{Measure, Metrics, Tally};
use crate::{Ema, GradientClip, History, LrSchedule, Optimizer, ReduceOnPlateau};

/// All that decides the steps to come, apart from parameters, optimizer and data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// The key of all randomness in the model.
    pub(crate) seed: u64,
    /// The epoch that the next batch belongs to.
    pub(crate) epoch: u64,
    /// Batches of that epoch that are done.
    pub(crate) batch: u64,
    /// Steps done over all epochs.
    pub(crate) step: u64,
    /// Batches in an epoch, if the training source knows.
    pub(crate) batches: Option<u64>,
    /// What the schedule scales.
    pub(crate) base_lr: f64,
    /// The rate of the last step, which the record of an epoch that it ended tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_lr: Option<f64>,
    /// None before the first step.
    pub(crate) schedule: Option<LrSchedule>,
    /// What lowers the rate when the evaluation gets no better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plateau: Option<ReduceOnPlateau>,
    /// How gradients become an update.
    #[serde(default)]
    pub(crate) updates: UpdateSettings,
    /// Sums over the samples of the unfinished epoch.
    pub(crate) tally: Tally,
    /// What hooks recorded in the unfinished epoch.
    pub(crate) recorded: BTreeMap<String, f64>,
    /// The finished epochs.
    pub(crate) history: History,
}

/// How gradients become an update.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct UpdateSettings {
    /// Batches a step.
    pub(crate) accumulate: u64,
    /// The limit of gradients, if there is one.
    pub(crate) clip: Option<GradientClip>,
}

impl Default for UpdateSettings {
    fn default() -> Self {
        Self {
            accumulate: 1,
            clip: None,
        }
    }
}

impl Position {
    /// The rate of a step by schedule and plateau.
    pub(crate) fn scheduled_lr(&self, step: u64) -> f64 {
        let lr = self.unreduced_lr(step);
        self.plateau.as_ref().map_or(lr, |plateau| plateau.lr(lr))
    }

    /// The rate of a step by the schedule alone.
    pub(crate) fn unreduced_lr(&self, step: u64) -> f64 {
        let schedule = self.schedule.as_ref();
        schedule.map_or(self.base_lr, |schedule| schedule.lr(self.base_lr, step))
    }

    pub(crate) fn start(seed: u64, base_lr: f64) -> Self {
        Self {
            seed,
            epoch: 0,
            batch: 0,
            step: 0,
            batches: None,
            base_lr,
            last_lr: None,
            schedule: None,
            plateau: None,
            updates: UpdateSettings::default(),
            tally: Tally::default(),
            recorded: BTreeMap::new(),
            history: History::default(),
        }
    }
}

/// What hooks want to know again after a resume.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    /// By key.
    pub(crate) values: BTreeMap<String, Value>,
    /// By key, a slash, and name.
    pub(crate) tensors: BTreeMap<String, Tensor>,
}

/// The whole of a training but model, loss and hooks.
pub(crate) struct State {
    /// Those that train the same model.
    pub(crate) ranks: Ranks,
    pub(crate) params: Params,
    pub(crate) optimizer: Box<dyn Optimizer>,
    pub(crate) position: Position,
    pub(crate) memory: Memory,
    pub(crate) resumed_from: Option<PathBuf>,
    /// The settings, for a report.
    pub(crate) settings: Value,
    /// Whether checkpoints are left out.
    pub(crate) dev_run: bool,
    pub(crate) epochs: u64,
    pub(crate) measure: Measure,
    /// The epoch hooks are told of: at its end it still is the finished one, while the position is past it.
    pub(crate) current_epoch: u64,
    pub(crate) current_batch: u64,
    pub(crate) within_epoch: bool,
    pub(crate) lr: f64,
    pub(crate) loss: Option<f64>,
    /// The global norm of the last step's gradients before they were clipped.
    pub(crate) gradient_norm: Option<f64>,
    pub(crate) ema: Option<Ema>,
    pub(crate) evaluation: Option<Metrics>,
    pub(crate) stop: bool,
}
