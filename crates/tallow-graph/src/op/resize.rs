//! Resampling images to another size.

use serde::{Deserialize, Serialize};

use super::check;
use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// PyTorch's `interpolate` to a given size: x `[N, C, H, W]` gives `[N, C, size...]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpolate {
    /// Output size, `[height, width]`.
    pub size: [usize; 2],
    /// How values between pixels are found.
    pub mode: Interpolation,
}

/// How values between pixels are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// The pixel at `⌊i · in / out⌋`.
    Nearest,
    /// The weighted mean of the four pixels around.
    Bilinear {
        /// Whether the centres of the corner pixels, rather than the outer edges, of both images coincide.
        align_corners: bool,
    },
}

impl Rule for Interpolate {
    fn name(&self) -> &'static str {
        "interpolate"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::float("x", &inputs[0])?;
        let [batch, channels, ..] = check::nchw("x", &inputs[0])?;
        check::positive("output size", &self.size)?;
        Ok(TensorType::new(
            inputs[0].dtype,
            [batch, channels, self.size[0], self.size[1]],
        ))
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        match self.mode {
            Interpolation::Nearest => 0,
            // Four products and three sums.
            Interpolation::Bilinear { .. } => output.elements().saturating_mul(7),
        }
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("size", self.size);
        list.show("mode", self.mode);
    }
}
