//! Max pooling.

use candle_core::{Result, Tensor, ToUsize2};
use candle_nn::Module;
use tallow_tensor::ops;

/// `nn.MaxPool2d`: the largest value of each window, `[N, C, H, W]` to `[N, C, H', W']` with
/// `H' = (H + 2 padding - kernel) / stride + 1`, rounded down, or up with `ceil_mode`. Padding never wins. Of equal
/// values the first gets the gradient.
#[derive(Debug, Clone, Copy)]
pub struct MaxPool2d {
    config: ops::Pool2dConfig,
}

impl MaxPool2d {
    /// Windows of `2` or `(3, 2)` side by side: the stride is the kernel, as in PyTorch.
    pub fn new(kernel: impl ToUsize2) -> Self {
        let kernel: [usize; 2] = kernel.to_usize2().into();
        Self {
            config: ops::Pool2dConfig {
                kernel,
                stride: kernel,
                padding: [0; 2],
                ceil_mode: false,
            },
        }
    }

    /// With this stride.
    pub fn stride(mut self, stride: impl ToUsize2) -> Self {
        self.config.stride = stride.to_usize2().into();
        self
    }

    /// With this padding, at most half the kernel.
    pub fn padding(mut self, padding: impl ToUsize2) -> Self {
        self.config.padding = padding.to_usize2().into();
        self
    }

    /// With windows that may hang over the end.
    pub fn ceil_mode(mut self, ceil_mode: bool) -> Self {
        self.config.ceil_mode = ceil_mode;
        self
    }
}

impl Module for MaxPool2d {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        ops::max_pool2d(xs, &self.config)
    }
}
