//! Batch normalisation in its parts, as a training step computes it: statistics, normalising, the two passes of the
//! gradient, the running statistics; and the two numbers a channel that are left of it in inference.
//!
//! Statistics and sums are values of their own, `[2, C]`, so that forward and backward share them.

use serde::{Deserialize, Serialize};

use super::check;
use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// An activation that can be undone from its output, and therefore joined with the operation before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clamp {
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
}

/// Mean and biased variance of each channel of x `[N, C, ...]`: `[2, C]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchStats;

/// `act((x - mean) / √(var + eps) · weight + bias + residual)` a channel: x `[N, C, ...]`, stats `[2, C]`, weight and
/// bias `[C]`, residual like x.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Normalize {
    /// Added to the variance before the root.
    pub eps: f64,
    /// The activation that is applied last.
    pub activation: Option<Clamp>,
    /// Whether there is a residual.
    pub residual: bool,
}

/// The sums over batch and space that the gradient of [`Normalize`] needs, a channel: those of `g` and of `g · x̂`, where
/// `g` is dy behind the activation and `x̂` the normalised x. They are the gradients of bias and weight.
///
/// dy and x `[N, C, ...]`, stats `[2, C]`, and with an activation y, the output; gives `[2, C]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NormalizeSums {
    /// Added to the variance before the root.
    pub eps: f64,
    /// The activation behind the norm.
    pub activation: Option<Clamp>,
}

/// The gradient of [`Normalize`] with respect to x: dy and x `[N, C, ...]`, stats and sums `[2, C]`, weight `[C]`, and
/// with an activation y, the output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NormalizeBackward {
    /// Added to the variance before the root.
    pub eps: f64,
    /// The activation behind the norm.
    pub activation: Option<Clamp>,
    /// Whether the statistics are those of x, so that the gradient goes through them too.
    pub batch: bool,
}

/// Which of the two statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The mean.
    Mean,
    /// The variance; the running one follows the unbiased one.
    Variance,
}

/// `(1 - momentum) · running + momentum · batch`: running `[C]`, stats `[2, C]` of `count` values a channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningStat {
    /// Which statistic.
    pub statistic: Statistic,
    /// The weight of the batch.
    pub momentum: f64,
    /// Values a channel that the statistics are of.
    pub count: u64,
}

/// What is left of batch normalisation in inference: `[2, C]`, the factor `weight / √(var + eps)` and the summand
/// `bias - mean · factor` of each channel, from weight, bias, running mean and running variance `[C]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoldBatchNorm {
    /// Added to the variance before the root.
    pub eps: f64,
}

fn channels(x: &TensorType) -> Result<usize, Problem> {
    check::dim("x", x, 1)?;
    Ok(x.shape[1])
}

fn pair(role: &str, ty: &TensorType, channels: usize) -> Result<(), Problem> {
    if ty.shape == [2, channels] {
        return Ok(());
    }
    Err(Problem::new(
        format!("{role} is {ty}"),
        format!("give {role} as [2, {channels}]"),
    ))
}

fn same(role: &str, ty: &TensorType, x: &TensorType) -> Result<(), Problem> {
    if ty == x {
        return Ok(());
    }
    Err(Problem::new(
        format!("{role} is {ty}, x is {x}"),
        format!("give {role} the type of x"),
    ))
}

/// The optional last input, which is there exactly if an attribute says so.
fn optional<'a>(
    role: &str,
    inputs: &'a [TensorType],
    index: usize,
    expected: bool,
) -> Result<Option<&'a TensorType>, Problem> {
    match (inputs.get(index), expected) {
        (Some(_), false) => Err(Problem::new(
            format!("{role} was given, but the attributes have no use for it"),
            format!("leave {role} out"),
        )),
        (None, true) => Err(Problem::new(
            format!("{role} is missing"),
            format!("give {role} as the last input"),
        )),
        (given, _) => Ok(given),
    }
}

impl Rule for BatchStats {
    fn name(&self) -> &'static str {
        "batch_stats"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::float("x", &inputs[0])?;
        Ok(TensorType::new(inputs[0].dtype, [2, channels(&inputs[0])?]))
    }

    fn flops(&self, inputs: &[TensorType], _output: &TensorType) -> u64 {
        check::first_elements(inputs).saturating_mul(3)
    }
}

impl Rule for Normalize {
    fn name(&self) -> &'static str {
        "normalize"
    }

    fn signature(&self) -> Signature {
        Signature::with_optional(&["x", "stats", "weight", "bias"], &["residual"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::same_float(&["x", "stats", "weight", "bias", "residual"], inputs)?;
        let channels = channels(&inputs[0])?;
        pair("stats", &inputs[1], channels)?;
        check::vector("weight", &inputs[2], channels)?;
        check::vector("bias", &inputs[3], channels)?;
        if let Some(residual) = optional("residual", inputs, 4, self.residual)? {
            same("residual", residual, &inputs[0])?;
        }
        Ok(inputs[0].clone())
    }

    fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements().saturating_mul(inputs.len() as u64)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("eps", self.eps);
        list.show_unless("activation", self.activation, None);
    }
}

impl Rule for NormalizeSums {
    fn name(&self) -> &'static str {
        "normalize_sums"
    }

    fn signature(&self) -> Signature {
        Signature::with_optional(&["dy", "x", "stats"], &["y"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::same_float(&["dy", "x", "stats", "y"], inputs)?;
        let channels = channels(&inputs[1])?;
        same("dy", &inputs[0], &inputs[1])?;
        pair("stats", &inputs[2], channels)?;
        if let Some(y) = optional("y", inputs, 3, self.activation.is_some())? {
            same("y", y, &inputs[1])?;
        }
        Ok(inputs[2].clone())
    }

    fn flops(&self, inputs: &[TensorType], _output: &TensorType) -> u64 {
        check::first_elements(inputs).saturating_mul(4)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("eps", self.eps);
        list.show_unless("activation", self.activation, None);
    }
}

impl Rule for NormalizeBackward {
    fn name(&self) -> &'static str {
        "normalize_backward"
    }

    fn signature(&self) -> Signature {
        Signature::with_optional(&["dy", "x", "stats", "weight", "sums"], &["y"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::same_float(&["dy", "x", "stats", "weight", "sums", "y"], inputs)?;
        let channels = channels(&inputs[1])?;
        same("dy", &inputs[0], &inputs[1])?;
        pair("stats", &inputs[2], channels)?;
        check::vector("weight", &inputs[3], channels)?;
        pair("sums", &inputs[4], channels)?;
        if let Some(y) = optional("y", inputs, 5, self.activation.is_some())? {
            same("y", y, &inputs[1])?;
        }
        Ok(inputs[1].clone())
    }

    fn flops(&self, inputs: &[TensorType], _output: &TensorType) -> u64 {
        check::first_elements(inputs).saturating_mul(5)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("eps", self.eps);
        list.show_unless("activation", self.activation, None);
        list.show("batch", self.batch);
    }
}

impl Rule for RunningStat {
    fn name(&self) -> &'static str {
        "running_stat"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["running", "stats"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::same_float(&["running", "stats"], inputs)?;
        check::dim("running", &inputs[0], 0)?;
        pair("stats", &inputs[1], inputs[0].shape[0])?;
        Ok(inputs[0].clone())
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements().saturating_mul(3)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("statistic", self.statistic);
        list.show("momentum", self.momentum);
        list.show("count", self.count);
    }
}

impl Rule for FoldBatchNorm {
    fn name(&self) -> &'static str {
        "fold_batch_norm"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["weight", "bias", "running_mean", "running_var"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        const ROLES: [&str; 4] = ["weight", "bias", "running_mean", "running_var"];
        check::same_float(&ROLES, inputs)?;
        check::dim("weight", &inputs[0], 0)?;
        let channels = inputs[0].shape[0];
        for (role, ty) in ROLES.iter().zip(inputs) {
            check::vector(role, ty, channels)?;
        }
        Ok(TensorType::new(inputs[0].dtype, [2, channels]))
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements().saturating_mul(3)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("eps", self.eps);
    }
}
