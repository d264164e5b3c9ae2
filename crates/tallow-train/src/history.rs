//! What a training was like, epoch by epoch: [`History`], for plots and reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metrics::Metrics;
use crate::{Error, Result};

/// The numbers of every finished epoch, in order.
///
/// A resumed training carries on with the history of its checkpoint. It serializes with `serde`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// One record an epoch, the first one first.
    pub epochs: Vec<EpochRecord>,
}

impl History {
    /// The record of the last finished epoch.
    pub fn last(&self) -> Option<&EpochRecord> {
        self.epochs.last()
    }

    /// The record with the highest evaluation accuracy, the earlier one of equals.
    pub fn best(&self) -> Option<&EpochRecord> {
        let accuracy = |record: &EpochRecord| record.evaluation.as_ref().map(|e| e.accuracy);
        self.epochs
            .iter()
            .filter(|record| accuracy(record).is_some())
            .reduce(|best, next| {
                if accuracy(next) > accuracy(best) {
                    next
                } else {
                    best
                }
            })
    }
}

impl EpochRecord {
    /// All numbers by name, those that were measured: `lr`, `train/loss`, `train/accuracy`, `train/top_k`, the same of
    /// `evaluation/`, what hooks recorded by its own name, `seconds` and `samples_per_second`.
    ///
    /// These names are used wherever a metric is asked for or logged by name.
    pub fn values(&self) -> Vec<(String, f64)> {
        let mut values = vec![("lr".to_string(), self.lr)];
        let parts = [
            ("train", Some(&self.train)),
            ("evaluation", self.evaluation.as_ref()),
        ];
        for (part, metrics) in parts {
            let Some(metrics) = metrics else { continue };
            let named = |name: &str| format!("{part}/{name}");
            values.push((named("loss"), metrics.loss));
            values.push((named("accuracy"), metrics.accuracy));
            values.extend(metrics.top_k.map(|top| (named("top_k"), top.accuracy)));
        }
        values.extend(self.recorded.clone());
        values.push(("seconds".to_string(), self.seconds));
        values.push(("samples_per_second".to_string(), self.samples_per_second));
        values
    }

    /// The number of a name of [`values`](Self::values).
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] lists the names that there are.
    pub fn value(&self, name: &str) -> Result<f64> {
        let values = self.values();
        let found = values.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
            Error::Setting {
                what: "the name of a metric",
                expected: format!("one of {}", names.join(", ")),
                found: format!("`{name}` (evaluation/ needs an evaluation source, other names a hook that records them before)"),
            }
        })
    }
}

/// The numbers of one epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// Steps taken since the training began, to the end of this epoch.
    pub steps: u64,
    /// The learning rate of the last step.
    pub lr: f64,
    /// Means over the training samples, measured while the parameters changed.
    pub train: Metrics,
    /// Means over the evaluation source at the end of the epoch, if there is one.
    pub evaluation: Option<Metrics>,
    /// What hooks recorded, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recorded: BTreeMap<String, f64>,
    /// Seconds spent in training steps and on their data, evaluation aside. After a resume in the middle of the
    /// epoch, the part since then.
    pub seconds: f64,
    /// Training samples a second over those seconds.
    pub samples_per_second: f64,
}
