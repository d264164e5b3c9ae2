//! [`EarlyStopping`]: no epochs that no longer help.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use tallow_tensor::params::Strict;

use super::{Better, without_slashes};
use crate::{EpochRecord, Error, Hook, HookContext, Result};

/// Ends the training when a metric has not improved for some epochs, and then gives the model the parameters and buffers of
/// the best epoch; also when the training ends because all epochs are done.
///
/// A training that a resume goes on with is judged as if it had never stopped: the copy of the best parameters is part of its
/// checkpoints, which grow by the size of the model. When something else stops the training before its end (a time limit, an
/// interrupt), parameters stay as they are, to go on with.
///
/// Put it before the hooks that write checkpoints: what these write at the end of the last epoch then holds the parameters of
/// that epoch, from which more epochs can follow.
///
/// ```
/// use tallow_train::hooks::{Better, EarlyStopping};
///
/// let hook = EarlyStopping::new("evaluation/loss", Better::Lower).patience(5).min_delta(1e-3);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct EarlyStopping {
    metric: String,
    better: Better,
    patience: u64,
    min_delta: f64,
    restore: bool,
    /// Whether patience has run out.
    over: bool,
}

/// What the checkpoint keeps.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Kept {
    /// The first epoch that was judged.
    from: u64,
    /// The epoch that the kept parameters are of.
    epoch: Option<u64>,
}

/// What the history says.
struct Verdict {
    best: Option<u64>,
    /// Epochs after the best one.
    waited: u64,
}

impl EarlyStopping {
    /// Watches a metric, named as in [`EpochRecord::values`](crate::EpochRecord::values): stops after 3 epochs without any
    /// improvement.
    pub fn new(metric: &str, better: Better) -> Self {
        Self {
            metric: metric.to_string(),
            better,
            patience: 3,
            min_delta: 0.0,
            restore: true,
            over: false,
        }
    }

    /// Stops after this many epochs in a row without an improvement; at least 1.
    pub fn patience(mut self, epochs: u64) -> Self {
        self.patience = epochs;
        self
    }

    /// Counts as an improvement only what is better than the best by more than `delta`; 0 by default.
    pub fn min_delta(mut self, delta: f64) -> Self {
        self.min_delta = delta;
        self
    }

    /// Whether the best parameters are kept and restored; yes by default.
    pub fn restore_best(mut self, restore: bool) -> Self {
        self.restore = restore;
        self
    }

    /// Under which what is kept stands in the checkpoint.
    fn key(&self) -> String {
        format!("early_stopping.{}", without_slashes(&self.metric))
    }

    fn judge(&self, history: &[EpochRecord], from: u64) -> Result<Verdict> {
        let mut best: Option<(u64, f64)> = None;
        let judged = history.iter().filter(|record| record.epoch >= from);
        let mut last = None;
        for record in judged {
            let value = record.value(&self.metric)?;
            let improves = |(_, best)| self.better.improves(value, best, self.min_delta);
            if best.map_or(!value.is_nan(), improves) {
                best = Some((record.epoch, value));
            }
            last = Some(record.epoch);
        }
        let best = best.map(|(epoch, _)| epoch);
        let waited = last.map_or(0, |last| match best {
            Some(best) => last - best,
            None => last - from + 1,
        });
        Ok(Verdict { best, waited })
    }

    /// Judges the finished epochs and keeps the parameters if the last of them is the best.
    fn update(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let key = self.key();
        let finished = context.history().epochs.len() as u64;
        let kept: Option<Kept> = context.recall(&key)?;
        let mut kept = kept.unwrap_or(Kept {
            from: finished,
            epoch: None,
        });
        let verdict = self.judge(&context.history().epochs, kept.from)?;
        let is_last = verdict.best.is_some_and(|best| best + 1 == finished);
        if self.restore && is_last && kept.epoch != verdict.best {
            let entries = context.params().iter();
            let tensors = entries.map(|entry| (entry.name, entry.var.as_detached_tensor()));
            context.remember_tensors(&key, &tensors.collect())?;
            kept.epoch = verdict.best;
        }
        context.remember(&key, &kept)?;
        self.over = verdict.waited >= self.patience;
        if self.over {
            context.request_stop();
        }
        Ok(())
    }
}

impl Hook for EarlyStopping {
    fn on_fit_begin(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let what = "the patience of early stopping";
        Error::require(self.patience > 0, what, "at least 1 epoch", &0)?;
        let what = "min_delta of early stopping";
        let fits = self.min_delta.is_finite() && self.min_delta >= 0.0;
        Error::require(fits, what, "a number >= 0", &self.min_delta)?;
        // A checkpoint may have been written at the end of an epoch before this hook saw it.
        self.update(context)
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.update(context)
    }

    fn on_fit_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let finished = context.history().epochs.len() as u64;
        let at_end = self.over || finished >= context.epochs();
        let best: IndexMap<_, _> = context.recall_tensors(&self.key());
        if self.restore && at_end && !best.is_empty() {
            context.params().load_tensors(&best, Strict::Yes)?;
        }
        Ok(())
    }
}
