//! Convolution.

use super::dispatch::run;
use super::{kernel, portable};
use candle_core::{Result, Tensor};
use tallow_graph::Op;
pub use tallow_graph::op::Conv2d as Conv2dConfig;

/// 2-D convolution (cross-correlation): `xs` `[N, C, H, W]` with `weight` `[O, C / groups, kh, kw]` and an optional
/// `bias` `[O]` gives `[N, O, H', W']`; PyTorch's `conv2d`.
///
/// `H' = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1`, rounded down; `W'` likewise. An input that no gradient
/// flows to (the images) costs no gradient computation.
///
/// # Errors
/// Where channels, groups or sizes don't fit.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use tallow_tensor::ops::{self, Conv2dConfig};
///
/// let images = Tensor::zeros((2, 3, 32, 32), DType::F32, &Device::Cpu)?;
/// let weight = Tensor::zeros((8, 3, 3, 3), DType::F32, &Device::Cpu)?;
/// let config = Conv2dConfig { stride: [2, 2], padding: [1, 1], ..Default::default() };
/// assert_eq!(ops::conv2d(&images, &weight, None, &config)?.dims(), [2, 8, 16, 16]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn conv2d(
    xs: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    config: &Conv2dConfig,
) -> Result<Tensor> {
    let op = Op::Conv2d(config.clone());
    let portable = || portable::convolution::conv2d(xs, weight, bias, config);
    match bias {
        None => run(
            op,
            [xs, weight],
            |[xs, weight], out| kernel::conv2d(xs, weight, None, config, out),
            portable,
        ),
        Some(bias) => run(
            op,
            [xs, weight, bias],
            |[xs, weight, bias], out| kernel::conv2d(xs, weight, Some(bias), config, out),
            portable,
        ),
    }
}
