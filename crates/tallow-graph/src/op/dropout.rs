//! Random omission. The mask is a function of (seed, step, draw, element), so that a run can be repeated.

use serde::{Deserialize, Serialize};

use super::check;
use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// Zeroes each element with probability `p` and multiplies the others by `1 / (1 - p)` (Srivastava et al., 2014).
/// Only in training; in evaluation there is no such operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dropout {
    /// The probability of zeroing, `0 <= p < 1`.
    pub p: f64,
    /// Which draw of the step this is, counted from 0.
    pub draw: u64,
}

/// Zeroes each sample (index of the first dimension) with probability `p` and multiplies the others by
/// `1 / (1 - p)` (stochastic depth, Huang et al., 2016). Only in training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DropPath {
    /// The probability of zeroing, `0 <= p < 1`.
    pub p: f64,
    /// Which draw of the step this is, counted from 0.
    pub draw: u64,
}

impl Rule for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::float("x", &inputs[0])?;
        check::probability(self.p)?;
        Ok(inputs[0].clone())
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements()
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("p", self.p);
        list.show("draw", self.draw);
    }
}

impl Rule for DropPath {
    fn name(&self) -> &'static str {
        "drop_path"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::float("x", &inputs[0])?;
        check::dim("x", &inputs[0], 0)?;
        check::probability(self.p)?;
        Ok(inputs[0].clone())
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements()
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("p", self.p);
        list.show("draw", self.draw);
    }
}
