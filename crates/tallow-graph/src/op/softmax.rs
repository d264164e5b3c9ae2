//! Softmax and its logarithm.

use serde::{Deserialize, Serialize};

use super::check;
use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// `exp(x) / Σ exp(x)` along `dim`, for floats of any shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softmax {
    /// The dimension that sums to one.
    pub dim: usize,
}

/// `x - log Σ exp(x)` along `dim`, for floats of any shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSoftmax {
    /// The dimension whose exponentials sum to one.
    pub dim: usize,
}

/// Maximum, difference, exponential, sum, quotient.
pub(super) const SOFTMAX_COST: u64 = 5;

fn infer(x: &TensorType, dim: usize) -> Result<TensorType, Problem> {
    check::float("x", x)?;
    check::dim("x", x, dim)?;
    Ok(x.clone())
}

impl Rule for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        infer(&inputs[0], self.dim)
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements().saturating_mul(SOFTMAX_COST)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("dim", self.dim);
    }
}

impl Rule for LogSoftmax {
    fn name(&self) -> &'static str {
        "log_softmax"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        infer(&inputs[0], self.dim)
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements().saturating_mul(SOFTMAX_COST)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("dim", self.dim);
    }
}
