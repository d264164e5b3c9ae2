//! Pooling to a given output size, whatever the input's.

use candle_core::{Result, Tensor, ToUsize2};
use candle_nn::Module;
use tallow_tensor::ops;

/// `nn.AdaptiveAvgPool2d`: `[N, C, H, W]` to `[N, C, oh, ow]`; output row `i` is the mean of rows `floor(i H / oh)` to
/// `ceil((i + 1) H / oh)`. Size 1 is global average pooling.
#[derive(Debug, Clone, Copy)]
pub struct AdaptiveAvgPool2d {
    size: [usize; 2],
}

impl AdaptiveAvgPool2d {
    /// To `1` or `(6, 6)` pixels.
    pub fn new(size: impl ToUsize2) -> Self {
        Self {
            size: size.to_usize2().into(),
        }
    }
}

impl Module for AdaptiveAvgPool2d {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        ops::adaptive_avg_pool2d(xs, self.size)
    }
}

/// `nn.AdaptiveMaxPool2d`: `[N, C, H, W]` to `[N, C, oh, ow]`, windows as in [`AdaptiveAvgPool2d`]. Of equal values the
/// first gets the gradient.
#[derive(Debug, Clone, Copy)]
pub struct AdaptiveMaxPool2d {
    size: [usize; 2],
}

impl AdaptiveMaxPool2d {
    /// To `1` or `(6, 6)` pixels.
    pub fn new(size: impl ToUsize2) -> Self {
        Self {
            size: size.to_usize2().into(),
        }
    }
}

impl Module for AdaptiveMaxPool2d {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        ops::adaptive_max_pool2d(xs, self.size)
    }
}
