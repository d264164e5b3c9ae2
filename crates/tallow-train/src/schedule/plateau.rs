//! A rate that falls when a metric gets no better: [`ReduceOnPlateau`].

use serde::{Deserialize, Serialize};

use crate::metrics::Metrics;
use crate::{Error, Result};

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Watched {
    /// The loss, which should fall.
    Loss,
    /// Top-1 accuracy, which should rise.
    Accuracy,
}

/// PyTorch's `ReduceLROnPlateau`: multiplies the rate with `factor` when the metric hasn't improved for more than `patience` epochs.
///
/// The metric is the evaluation's, or the training's where there is no evaluation. The factor comes on top of the schedule, and is
/// part of a checkpoint with everything it depends on.
///
/// ```
/// use tallow_train::ReduceOnPlateau;
///
/// let mut plateau = ReduceOnPlateau::on_loss().with_patience(1).with_factor(0.5);
/// for loss in [1.0, 0.8, 0.8, 0.8] {
///     plateau.observe(0.1, loss);
/// }
/// assert_eq!(plateau.lr(0.1), 0.05);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReduceOnPlateau {
    watched: Watched,
    factor: f64,
    patience: u64,
    threshold: f64,
    cooldown: u64,
    min_lr: f64,
    best: Option<f64>,
    bad: u64,
    cooling: u64,
    scale: f64,
}

impl ReduceOnPlateau {
    fn new(watched: Watched) -> Self {
        Self {
            watched,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            cooldown: 0,
            min_lr: 0.0,
            best: None,
            bad: 0,
            cooling: 0,
            scale: 1.0,
        }
    }

    /// Watches the loss, with PyTorch's defaults: a tenth of the rate after 10 epochs without a loss that is lower by 1e-4 of itself.
    pub fn on_loss() -> Self {
        Self::new(Watched::Loss)
    }

    /// Watches the accuracy, with the same defaults.
    pub fn on_accuracy() -> Self {
        Self::new(Watched::Accuracy)
    }

    /// Sets what the rate is multiplied with.
    #[must_use]
    pub fn with_factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// Sets how many epochs without improvement are borne.
    #[must_use]
    pub fn with_patience(mut self, epochs: u64) -> Self {
        self.patience = epochs;
        self
    }

    /// Sets how much better than the best, as a share of it, counts as improvement.
    #[must_use]
    pub fn with_threshold(mut self, threshold: f64) -> Self {
        self.threshold = threshold;
        self
    }

    /// Sets how many epochs after a reduction don't count.
    #[must_use]
    pub fn with_cooldown(mut self, epochs: u64) -> Self {
        self.cooldown = epochs;
        self
    }

    /// Sets the least rate.
    #[must_use]
    pub fn with_min_lr(mut self, min_lr: f64) -> Self {
        self.min_lr = min_lr;
        self
    }

    /// The rate, where the schedule alone gives `lr`.
    pub fn lr(&self, lr: f64) -> f64 {
        if self.scale == 1.0 {
            return lr;
        }
        // A schedule may lie below the least rate by itself.
        (lr * self.scale).max(self.min_lr.min(lr))
    }

    /// Takes the metric of an epoch, whose schedule alone gave the rate `lr`.
    pub fn observe(&mut self, lr: f64, metric: f64) {
        if self.is_better(metric) {
            self.best = Some(metric);
            self.bad = 0;
        } else {
            self.bad += 1;
        }
        if self.cooling > 0 {
            self.cooling -= 1;
            self.bad = 0;
        }
        if self.bad > self.patience {
            let old = self.lr(lr);
            let new = (old * self.factor).max(self.min_lr);
            // PyTorch's `eps`: smaller changes are not worth making.
            if old - new > 1e-8 {
                self.scale *= self.factor;
            }
            self.cooling = self.cooldown;
            self.bad = 0;
        }
    }

    pub(crate) fn observe_metrics(&mut self, lr: f64, metrics: &Metrics) {
        self.observe(
            lr,
            match self.watched {
                Watched::Loss => metrics.loss,
                Watched::Accuracy => metrics.accuracy,
            },
        );
    }

    fn is_better(&self, metric: f64) -> bool {
        let Some(best) = self.best else {
            return !metric.is_nan();
        };
        match self.watched {
            Watched::Loss => metric < best * (1.0 - self.threshold),
            Watched::Accuracy => metric > best * (1.0 + self.threshold),
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] names the first that makes no sense.
    pub fn check(&self) -> Result<()> {
        let fits = self.factor > 0.0 && self.factor < 1.0;
        let what = "the factor of a reduction on a plateau";
        Error::require(fits, what, "above 0 and below 1", &self.factor)?;
        for (what, value) in [
            ("the threshold of a plateau", self.threshold),
            ("the least rate on a plateau", self.min_lr),
        ] {
            let fits = value.is_finite() && value >= 0.0;
            Error::require(fits, what, "a number >= 0", &value)?;
        }
        Ok(())
    }
}
