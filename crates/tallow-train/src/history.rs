//! What a training was like, epoch by epoch: [`History`], for plots and reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metrics::Metrics;

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
