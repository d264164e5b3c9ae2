//! [`ConfusionMatrix`]: which classes are taken for which, and what follows from it.

use candle_core::{DType, Tensor};
use serde::{Deserialize, Serialize};

use crate::{Error, HookContext, Result};

/// How often each class was predicted as each, over any number of batches.
///
/// Precision, recall and F1 are those of scikit-learn's `precision_recall_fscore_support` with `labels=range(classes)`.
///
/// ```
/// use tallow_train::metrics::{Average, ConfusionMatrix};
///
/// # fn main() -> tallow_train::Result<()> {
/// let mut matrix = ConfusionMatrix::new(2)?;
/// matrix.add(&[0, 0, 1, 1], &[0, 1, 1, 1])?; // labels, predictions
/// assert_eq!(matrix.count(0, 1), 1);
/// assert_eq!(matrix.accuracy(), Some(0.75));
/// assert_eq!(matrix.class(1).precision, 2.0 / 3.0);
/// assert_eq!(matrix.average(Average::Macro).recall, 0.75);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfusionMatrix {
    classes: usize,
    /// A row a label, a column a prediction.
    counts: Vec<u64>,
    /// What a share of nothing is: 0 or 1.
    of_nothing: u8,
}

/// Precision, recall and F1, of one class or averaged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Of what was predicted as the class, the share that is of it.
    pub precision: f64,
    /// Of what is of the class, the share that was predicted as it.
    pub recall: f64,
    /// The harmonic mean of the two, `2 TP / (2 TP + FP + FN)`.
    pub f1: f64,
    /// How many samples are of the class; of an average, all.
    pub support: u64,
}

/// How the scores of classes become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Average {
    /// The mean over classes, each alike.
    Macro,
    /// The scores of all decisions together; all three are the accuracy.
    Micro,
    /// The mean over classes, each by its number of samples.
    Weighted,
}

impl ConfusionMatrix {
    /// An empty matrix.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for no class.
    pub fn new(classes: usize) -> Result<Self> {
        Error::require(classes > 0, "the number of classes", "at least 1", &classes)?;
        let size = classes.checked_mul(classes);
        Ok(Self {
            classes,
            counts: vec![0; size.unwrap_or(usize::MAX)],
            of_nothing: 0,
        })
    }

    /// Sets what a score is whose denominator is 0, the precision of a class that was never predicted for one: 0 by default, or
    /// 1 (scikit-learn's `zero_division`).
    #[must_use]
    pub fn zero_division(mut self, one: bool) -> Self {
        self.of_nothing = u8::from(one);
        self
    }

    /// Adds samples by their labels and predicted classes.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for slices of different lengths and for what is no class; nothing is added then.
    pub fn add(&mut self, labels: &[u32], predictions: &[u32]) -> Result<()> {
        let what = "a confusion matrix";
        let found = format!("{} and {}", labels.len(), predictions.len());
        let fits = labels.len() == predictions.len();
        Error::require(fits, what, "as many labels as predictions", &found)?;
        for class in labels.iter().chain(predictions) {
            let fits = (*class as usize) < self.classes;
            let expected = format!("a number from 0 to {}", self.classes - 1);
            Error::require(fits, "a class of a confusion matrix", &expected, class)?;
        }
        for (&label, &prediction) in labels.iter().zip(predictions) {
            self.counts[label as usize * self.classes + prediction as usize] += 1;
        }
        Ok(())
    }

    /// Adds a batch by its logits `[N, classes]` and labels `[N]` u32. The highest logit is the prediction, of equal ones the
    /// first; NaN counts as the lowest. Samples with the label `ignored` are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for shapes that don't fit the matrix and for a label that is no class; nothing is added then.
    pub fn add_batch(
        &mut self,
        logits: &Tensor,
        labels: &Tensor,
        ignored: Option<i64>,
    ) -> Result<()> {
        let fits = logits.rank() == 2
            && logits.dims()[1] == self.classes
            && labels.rank() == 1
            && labels.dtype() == DType::U32
            && labels.dims()[0] == logits.dims()[0];
        if !fits {
            return Err(Error::Setting {
                what: "a batch for a confusion matrix",
                expected: format!("logits [N, {}] and u32 labels [N]", self.classes),
                found: format!(
                    "logits {:?} and {} labels {:?}",
                    logits.dims(),
                    labels.dtype().as_str(),
                    labels.dims()
                ),
            });
        }
        let rows = logits.detach().to_dtype(DType::F32)?.to_vec2::<f32>()?;
        let labels = labels.to_vec1::<u32>()?;
        let counted = labels.into_iter().zip(&rows);
        let counted = counted.filter(|(label, _)| Some(i64::from(*label)) != ignored);
        let (labels, predictions): (Vec<u32>, Vec<u32>) =
            counted.map(|(label, row)| (label, highest(row))).unzip();
        self.add(&labels, &predictions)
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// How often `label` was predicted as `prediction`; 0 for what is no class.
    pub fn count(&self, label: usize, prediction: usize) -> u64 {
        if label.max(prediction) >= self.classes {
            return 0;
        }
        self.counts[label * self.classes + prediction]
    }

    /// A row a label, with a number for each prediction.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.counts.chunks_exact(self.classes)
    }

    /// The number of samples.
    pub fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Makes it the matrix of all ranks' samples; counts are exact up to 2⁵³.
    pub(crate) fn sum_over_ranks(&mut self, context: &HookContext<'_>) -> Result<()> {
        let mut counts: Vec<f64> = self.counts.iter().map(|&count| count as f64).collect();
        context.sum_over_ranks(&mut counts)?;
        for (count, sum) in self.counts.iter_mut().zip(counts) {
            *count = sum as u64;
        }
        Ok(())
    }

    /// The share of samples on the diagonal; none without samples.
    pub fn accuracy(&self) -> Option<f64> {
        let samples = self.samples();
        (samples > 0).then(|| self.hits() as f64 / samples as f64)
    }

    /// The scores of one class; of a number that is no class, those of a class without samples.
    pub fn class(&self, class: usize) -> Scores {
        let hits = self.count(class, class);
        let support = (0..self.classes)
            .map(|other| self.count(class, other))
            .sum();
        let predicted = (0..self.classes)
            .map(|other| self.count(other, class))
            .sum();
        self.scores(hits, support, predicted)
    }

    /// The scores of every class, in order.
    pub fn per_class(&self) -> Vec<Scores> {
        (0..self.classes).map(|class| self.class(class)).collect()
    }

    /// The scores of all classes as one.
    pub fn average(&self, average: Average) -> Scores {
        let samples = self.samples();
        let weigh: fn(&Scores) -> f64 = match average {
            Average::Micro => return self.scores(self.hits(), samples, samples),
            Average::Macro => |_| 1.0,
            Average::Weighted => |scores| scores.support as f64,
        };
        let classes = self.per_class();
        let total: f64 = classes.iter().map(weigh).sum();
        let mean = |score: fn(&Scores) -> f64| {
            if total == 0.0 {
                return f64::from(self.of_nothing);
            }
            classes
                .iter()
                .map(|scores| weigh(scores) * score(scores))
                .sum::<f64>()
                / total
        };
        Scores {
            precision: mean(|scores| scores.precision),
            recall: mean(|scores| scores.recall),
            f1: mean(|scores| scores.f1),
            support: samples,
        }
    }

    fn hits(&self) -> u64 {
        (0..self.classes)
            .map(|class| self.count(class, class))
            .sum()
    }

    fn scores(&self, hits: u64, support: u64, predicted: u64) -> Scores {
        let share = |part: u64, whole: u64| match whole {
            0 => f64::from(self.of_nothing),
            whole => part as f64 / whole as f64,
        };
        Scores {
            precision: share(hits, predicted),
            recall: share(hits, support),
            f1: share(2 * hits, support + predicted),
            support,
        }
    }
}

/// A table for people: a row a label, a column a prediction.
impl std::fmt::Display for ConfusionMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let widest = self
            .counts
            .iter()
            .max()
            .copied()
            .unwrap_or(0)
            .max(self.classes as u64);
        let width = widest.to_string().len().max(2);
        write!(f, "label")?;
        for class in 0..self.classes {
            write!(f, " {class:>width$}")?;
        }
        for (label, row) in self.rows().enumerate() {
            write!(f, "\n{label:>5}")?;
            for count in row {
                write!(f, " {count:>width$}")?;
            }
        }
        Ok(())
    }
}

fn highest(row: &[f32]) -> u32 {
    let mut best = 0;
    for (index, value) in row.iter().enumerate() {
        if *value > row[best] || (row[best].is_nan() && !value.is_nan()) {
            best = index;
        }
    }
    best as u32
}
