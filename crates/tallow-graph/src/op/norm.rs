//! Normalisation: batch, layer, group.

use serde::{Deserialize, Serialize};

use super::check;
use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// PyTorch's `batch_norm`: x `[N, C, ...]`, weight, bias, running mean and running variance `[C]` each
/// (Ioffe and Szegedy, 2015).
///
/// With `train`, statistics come from the batch (the variance is the biased one), and a run moves the two running
/// buffers towards them by `momentum` (with the unbiased variance); without it they come from the buffers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchNorm {
    /// Added to the variance before the root; PyTorch's usual is `1e-5`.
    pub eps: f64,
    /// The weight of a new batch in the running statistics; PyTorch's usual is `0.1`.
    pub momentum: f64,
    /// Whether the statistics are those of the batch.
    pub train: bool,
}

/// PyTorch's `layer_norm`: x `[..., D₁, D₂, ...]`, weight and bias of the trailing shape `[D₁, D₂, ...]`, over
/// which mean and variance are taken (Ba et al., 2016).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerNorm {
    /// Added to the variance before the root.
    pub eps: f64,
}

/// PyTorch's `group_norm`: x `[N, C, ...]`, weight and bias `[C]`; mean and variance over a group of channels and
/// all positions (Wu and He, 2018).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupNorm {
    /// Number of groups; divides the channels.
    pub groups: usize,
    /// Added to the variance before the root.
    pub eps: f64,
}

/// Mean, variance, scaling and shifting, an element.
const NORMALISE: u64 = 8;
/// Scaling and shifting with known statistics, an element.
const AFFINE: u64 = 2;

fn channels(ty: &TensorType) -> Result<usize, Problem> {
    ty.shape.get(1).copied().ok_or_else(|| {
        Problem::new(
            format!("x has {} dimensions, fewer than 2", ty.rank()),
            "give x as [N, C, ...]",
        )
    })
}

impl Rule for BatchNorm {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x", "weight", "bias", "running_mean", "running_var"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        const ROLES: [&str; 5] = ["x", "weight", "bias", "running_mean", "running_var"];
        check::same_float(&ROLES, inputs)?;
        let channels = channels(&inputs[0])?;
        for (role, ty) in ROLES.iter().zip(inputs).skip(1) {
            check::vector(role, ty, channels)?;
        }
        let values = inputs[0].elements() / (channels as u64).max(1);
        if self.train && channels > 0 && values == 1 {
            return Err(Problem::new(
                "in training, one value a channel has no variance",
                "train on batches of 2 or more (drop the last partial batch), or use evaluation mode",
            ));
        }
        Ok(inputs[0].clone())
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        let cost = if self.train { NORMALISE } else { AFFINE };
        output.elements().saturating_mul(cost)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("eps", self.eps);
        if self.train {
            list.show("momentum", self.momentum);
            list.show("train", true);
        }
    }
}

impl Rule for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x", "weight", "bias"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::same_float(&["x", "weight", "bias"], inputs)?;
        let [x, weight, bias] = [&inputs[0], &inputs[1], &inputs[2]];
        if weight.rank() == 0 || !x.shape.ends_with(&weight.shape) {
            return Err(Problem::new(
                format!(
                    "the last dimensions of x are not those of weight, {:?}",
                    weight.shape
                ),
                "give a weight of the shape that x ends with",
            ));
        }
        if bias.shape != weight.shape {
            return Err(Problem::new(
                format!("bias is {:?}, weight is {:?}", bias.shape, weight.shape),
                "give both the same shape",
            ));
        }
        Ok(x.clone())
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements().saturating_mul(NORMALISE)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("eps", self.eps);
    }
}

impl Rule for GroupNorm {
    fn name(&self) -> &'static str {
        "group_norm"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x", "weight", "bias"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::same_float(&["x", "weight", "bias"], inputs)?;
        let channels = channels(&inputs[0])?;
        check::positive("groups", &[self.groups])?;
        if !channels.is_multiple_of(self.groups) {
            return Err(Problem::new(
                format!("{} groups don't divide {channels} channels", self.groups),
                "choose a number of groups that divides the channels",
            ));
        }
        check::vector("weight", &inputs[1], channels)?;
        check::vector("bias", &inputs[2], channels)?;
        Ok(inputs[0].clone())
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements().saturating_mul(NORMALISE)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("groups", self.groups);
        list.show("eps", self.eps);
    }
}
