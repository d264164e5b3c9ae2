//! Losses.

use serde::{Deserialize, Serialize};

use super::check;
use super::rule::{Attributes, Problem, Rule, Signature};
use super::softmax::SOFTMAX_COST;
use crate::TensorType;

/// PyTorch's `cross_entropy` with `reduction="mean"`: logits `[N, C]`, and targets that are class indices `[N]`
/// (integers) or probabilities `[N, C]` (floats), giving a scalar.
///
/// With indices the mean is over the samples that are not ignored; with probabilities over all `N`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CrossEntropy {
    /// The share of the target that is spread evenly over all classes, `0 ..= 1` (Szegedy et al., 2015).
    pub label_smoothing: f64,
    /// Samples with this class index don't count.
    pub ignore_index: Option<i64>,
}

impl CrossEntropy {
    fn check_targets(
        &self,
        batch: usize,
        logits: &TensorType,
        targets: &TensorType,
    ) -> Result<(), Problem> {
        if !targets.dtype.is_float() {
            return check::vector("targets", targets, batch);
        }
        if targets.shape != logits.shape {
            return Err(Problem::new(
                "targets of floats are probabilities, and must have the shape of logits",
                format!(
                    "give probabilities {:?}, or class indices [{batch}] as u32",
                    logits.shape
                ),
            ));
        }
        if self.ignore_index.is_some() {
            return Err(Problem::new(
                "ignore_index has no meaning for probabilities",
                "set it to None, or give class indices",
            ));
        }
        check::same_float(&["logits", "targets"], &[logits.clone(), targets.clone()])
    }
}

impl Rule for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["logits", "targets"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let (logits, targets) = (&inputs[0], &inputs[1]);
        check::float("logits", logits)?;
        let &[batch, classes] = logits.shape.as_slice() else {
            return Err(Problem::new(
                format!("logits has {} dimensions, not 2", logits.rank()),
                "give logits as [N, C]",
            ));
        };
        if batch == 0 || classes == 0 {
            return Err(Problem::new(
                "the mean over no samples or classes is undefined",
                "give at least one of each",
            ));
        }
        self.check_targets(batch, logits, targets)?;
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            return Err(Problem::new(
                format!("label smoothing is {}", self.label_smoothing),
                "give one of 0 ..= 1",
            ));
        }
        Ok(TensorType::new(logits.dtype, []))
    }

    fn flops(&self, inputs: &[TensorType], _output: &TensorType) -> u64 {
        // A log-softmax, then a product and a sum a logit.
        check::first_elements(inputs).saturating_mul(SOFTMAX_COST + 2)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show_unless("label_smoothing", self.label_smoothing, 0.0);
        if let Some(index) = self.ignore_index {
            list.show("ignore_index", index);
        }
    }
}
