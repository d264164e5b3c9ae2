//! What is measured: accuracy of logits, averages that weigh every sample alike, and scores by class.
//!
//! Nothing here decides when to measure; [`Trainer`](crate::Trainer) does that, or a loop of your own.

mod confusion;

use candle_core::{DType, Tensor};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

pub use confusion::{Average, ConfusionMatrix, Scores};

/// A mean over samples that come in batches of different sizes.
///
/// ```
/// use tallow_train::metrics::RunningMean;
///
/// let mut loss = RunningMean::default();
/// loss.add(2.0, 30); // the mean of 30 samples
/// loss.add(1.0, 10);
/// assert_eq!(loss.mean(), Some(1.75));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RunningMean {
    sum: f64,
    samples: u64,
}

impl RunningMean {
    /// Adds the mean of `samples` samples.
    pub fn add(&mut self, mean: f64, samples: u64) {
        self.sum += mean * samples as f64;
        self.samples += samples;
    }

    /// The mean over all samples so far; none before the first.
    pub fn mean(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.sum / self.samples as f64)
    }

    /// How many samples were added.
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

/// The numbers of an epoch or of an evaluation, each a mean over its samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The samples measured; those with the ignored label are left out.
    pub samples: u64,
    /// The mean loss of a sample, in nats for cross entropy.
    pub loss: f64,
    /// The share of samples whose highest logit is the label's, from 0 to 1.
    pub accuracy: f64,
    /// The share of samples whose label is among the k highest logits, when that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<TopK>,
}

/// Top-k accuracy with its k.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TopK {
    /// How many of the highest logits count.
    pub k: usize,
    /// The share of samples whose label is among them, from 0 to 1.
    pub accuracy: f64,
}

impl std::fmt::Display for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "loss {:.4}  accuracy {:.2} %",
            self.loss,
            100.0 * self.accuracy
        )?;
        if let Some(top) = &self.top_k {
            write!(f, "  top-{} {:.2} %", top.k, 100.0 * top.accuracy)?;
        }
        Ok(())
    }
}

/// The share of samples whose highest logit is the label's (top-1), from 0 to 1.
///
/// `logits` are `[N, classes]` of any float type, `labels` `[N]` u32. Of equal logits the first counts as the
/// higher, and NaN is never right.
///
/// # Errors
///
/// Shapes that don't fit each other, no samples, or a label that is no class.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tallow_train::metrics::{accuracy, top_k_accuracy};
///
/// # fn main() -> tallow_train::Result<()> {
/// let logits = Tensor::new(&[[0.1f32, 0.7, 0.2], [0.5, 0.1, 0.4]], &Device::Cpu)?;
/// let labels = Tensor::new(&[1u32, 2], &Device::Cpu)?;
/// assert_eq!(accuracy(&logits, &labels)?, 0.5);
/// assert_eq!(top_k_accuracy(&logits, &labels, 2)?, 1.0);
/// # Ok(())
/// # }
/// ```
pub fn accuracy(logits: &Tensor, labels: &Tensor) -> Result<f64> {
    top_k_accuracy(logits, labels, 1)
}

/// The share of samples whose label is among the `k` highest logits, from 0 to 1; see [`accuracy`].
///
/// # Errors
///
/// As [`accuracy`], and a `k` of 0.
pub fn top_k_accuracy(logits: &Tensor, labels: &Tensor, k: usize) -> Result<f64> {
    Error::require(k > 0, "k of top-k accuracy", "at least 1", &k)?;
    let ranks = label_ranks(logits, labels, None)?;
    Error::require(!ranks.is_empty(), "accuracy", "at least 1 sample", &0)?;
    let hits = ranks.iter().filter(|&&rank| rank < k).count();
    Ok(hits as f64 / ranks.len() as f64)
}

/// For each sample, how many logits stand before its label's; samples with the label `ignored` are left out.
fn label_ranks(logits: &Tensor, labels: &Tensor, ignored: Option<i64>) -> Result<Vec<usize>> {
    let fits = logits.rank() == 2
        && labels.rank() == 1
        && labels.dtype() == DType::U32
        && logits.dims()[0] == labels.dims()[0];
    if !fits {
        return Err(Error::Setting {
            what: "accuracy",
            expected: "logits [N, classes] and u32 labels [N]".into(),
            found: format!(
                "logits {:?} and {} labels {:?}",
                logits.dims(),
                labels.dtype().as_str(),
                labels.dims()
            ),
        });
    }
    let classes = logits.dims()[1];
    let rows = logits.detach().to_dtype(DType::F32)?.to_vec2::<f32>()?;
    let labels = labels.to_vec1::<u32>()?;
    let counted = rows
        .iter()
        .zip(labels)
        .filter(|(_, label)| Some(i64::from(*label)) != ignored);
    counted
        .map(|(row, label)| {
            row_rank(row, label as usize).ok_or_else(|| Error::Setting {
                what: "a label",
                expected: format!("a class from 0 to {}", classes.saturating_sub(1)),
                found: label.to_string(),
            })
        })
        .collect()
}

/// How many entries of `row` stand before entry `label`; the row's length when that entry is NaN.
fn row_rank(row: &[f32], label: usize) -> Option<usize> {
    let own = *row.get(label)?;
    if own.is_nan() {
        return Some(row.len());
    }
    let before = |(index, other): (usize, &f32)| *other > own || (*other == own && index < label);
    Some(
        row.iter()
            .enumerate()
            .filter(|entry| before(*entry))
            .count(),
    )
}

/// The sums from which [`Metrics`] are made, batch after batch. Part of a checkpoint in the middle of an epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tally {
    loss: RunningMean,
    hits: u64,
    top_k_hits: u64,
}

impl Tally {
    /// Adds a batch: its mean loss and its logits.
    pub(crate) fn add(
        &mut self,
        loss: f64,
        logits: &Tensor,
        labels: &Tensor,
        measure: Measure,
    ) -> Result<()> {
        let ranks = label_ranks(logits, labels, measure.ignored_label)?;
        let within = |k: usize| ranks.iter().filter(|&&rank| rank < k).count() as u64;
        self.loss.add(loss, ranks.len() as u64);
        self.hits += within(1);
        self.top_k_hits += measure.top_k.map_or(0, within);
        Ok(())
    }

    pub(crate) fn samples(&self) -> u64 {
        self.loss.samples()
    }

    /// Adds what another tally counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.loss.sum += other.loss.sum;
        self.loss.samples += other.loss.samples;
        self.hits += other.hits;
        self.top_k_hits += other.top_k_hits;
    }

    /// Its numbers, for a sum over ranks; counts are exact up to 2⁵³.
    pub(crate) fn numbers(&self) -> [f64; 4] {
        let counts = [self.loss.samples, self.hits, self.top_k_hits].map(|count| count as f64);
        [self.loss.sum, counts[0], counts[1], counts[2]]
    }

    pub(crate) fn from_numbers([sum, samples, hits, top_k_hits]: [f64; 4]) -> Self {
        Self {
            loss: RunningMean {
                sum,
                samples: samples as u64,
            },
            hits: hits as u64,
            top_k_hits: top_k_hits as u64,
        }
    }

    /// The means so far; none before the first counted sample.
    pub(crate) fn metrics(&self, measure: Measure) -> Option<Metrics> {
        let samples = self.loss.samples();
        let share = |hits: u64| hits as f64 / samples as f64;
        Some(Metrics {
            samples,
            loss: self.loss.mean()?,
            accuracy: share(self.hits),
            top_k: measure.top_k.map(|k| TopK {
                k,
                accuracy: share(self.top_k_hits),
            }),
        })
    }
}

/// What a [`Tally`] counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measure {
    pub(crate) top_k: Option<usize>,
    pub(crate) ignored_label: Option<i64>,
}
