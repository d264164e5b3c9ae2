//! Flattening of the dimensions after the batch.

use candle_core::{Result, Tensor};
use candle_nn::Module;
use tallow_tensor::ops;

/// `nn.Flatten`: `[N, C, H, W]` to `[N, C H W]`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flatten;

impl Module for Flatten {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        ops::flatten(xs, 1)
    }
}
