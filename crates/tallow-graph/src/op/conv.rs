//! Two-dimensional convolution.

use serde::{Deserialize, Serialize};

use super::check::{self, Window};
use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// PyTorch's `conv2d`: x `[N, C, H, W]`, weight `[O, C / groups, kh, kw]`, optional bias `[O]`, giving
/// `[N, O, H', W']` with `H' = (H + 2·padding - dilation·(kh - 1) - 1) / stride + 1` rounded down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conv2d {
    /// Step of the window, `[vertical, horizontal]`.
    pub stride: [usize; 2],
    /// Zeros on each side, `[vertical, horizontal]`.
    pub padding: [usize; 2],
    /// Distance between taps, `[vertical, horizontal]`.
    pub dilation: [usize; 2],
    /// Number of independent channel groups; as many as channels for a depthwise convolution.
    pub groups: usize,
}

impl Default for Conv2d {
    /// Stride 1, no padding, no dilation, one group.
    fn default() -> Self {
        Self {
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
            groups: 1,
        }
    }
}

const ROLES: &[&str] = &["x", "weight", "bias"];

impl Conv2d {
    fn check_channels(&self, channels: usize, weight: [usize; 4]) -> Result<(), Problem> {
        let [out, per_group, ..] = weight;
        let groups = self.groups;
        if !channels.is_multiple_of(groups) || !out.is_multiple_of(groups) {
            return Err(Problem::new(
                format!("{groups} groups don't divide {channels} channels into {out}"),
                "choose a number of groups that divides both",
            ));
        }
        if channels / groups != per_group {
            return Err(Problem::new(
                format!(
                    "x has {channels} channels, weight is made for {}",
                    per_group.saturating_mul(groups)
                ),
                format!(
                    "give a weight of shape [{out}, {}, {}, {}] or an x of the right channels",
                    channels / groups,
                    weight[2],
                    weight[3]
                ),
            ));
        }
        Ok(())
    }
}

impl Rule for Conv2d {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn signature(&self) -> Signature {
        Signature::with_optional(&["x", "weight"], &["bias"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::same_float(ROLES, inputs)?;
        let [batch, channels, height, width] = check::nchw("x", &inputs[0])?;
        let weight = <[usize; 4]>::try_from(inputs[1].shape.as_slice()).map_err(|_| {
            Problem::new(
                format!("weight has {} dimensions, not 4", inputs[1].rank()),
                "give weight as [O, C / groups, kh, kw]",
            )
        })?;
        let [out, _, kh, kw] = weight;
        check::positive("stride", &self.stride)?;
        check::positive("dilation", &self.dilation)?;
        check::positive("groups", &[self.groups])?;
        check::positive("kernel", &[kh, kw])?;
        self.check_channels(channels, weight)?;
        if let Some(bias) = inputs.get(2) {
            check::vector("bias", bias, out)?;
        }
        let window = |axis: usize, kernel| Window {
            kernel,
            stride: self.stride[axis],
            padding: self.padding[axis],
            dilation: self.dilation[axis],
        };
        let rows = check::window_steps("height", height, &window(0, kh), false)?;
        let columns = check::window_steps("width", width, &window(1, kw), false)?;
        Ok(TensorType::new(
            inputs[0].dtype,
            [batch, out, rows, columns],
        ))
    }

    fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        let bias = if inputs.len() > 2 {
            output.elements()
        } else {
            0
        };
        self.macs(inputs, output)
            .saturating_mul(2)
            .saturating_add(bias)
    }

    fn macs(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        let taps = inputs.get(1).map_or(0, |weight| {
            check::count(weight.shape.get(1..).unwrap_or(&[]))
        });
        output.elements().saturating_mul(taps)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show_unless("stride", self.stride, [1, 1]);
        list.show_unless("padding", self.padding, [0, 0]);
        list.show_unless("dilation", self.dilation, [1, 1]);
        list.show_unless("groups", self.groups, 1);
    }
}
