//! Pools: maximum and mean over sliding or adaptive windows.

use super::dispatch::run;
use super::kernel;
use super::portable::pooling as portable;
use candle_core::{Result, Tensor};
use tallow_graph::{
    Op,
    op::{AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, MaxPool2d},
};

/// A sliding window; pairs are `[vertical, horizontal]`.
///
/// ```
/// use tallow_tensor::ops::Pool2dConfig;
///
/// let halve = Pool2dConfig::new(2);
/// assert_eq!(halve.stride, [2, 2]);
/// let stem = Pool2dConfig { stride: [2, 2], padding: [1, 1], ..Pool2dConfig::new(3) };
/// assert_eq!(stem.kernel, [3, 3]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool2dConfig {
    /// Window size.
    pub kernel: [usize; 2],
    /// Step of the window.
    pub stride: [usize; 2],
    /// Padding on each side, at most half the kernel.
    pub padding: [usize; 2],
    /// Whether a last window that overhangs the end counts.
    pub ceil_mode: bool,
}

impl Pool2dConfig {
    /// Square windows side by side, as PyTorch's pools without a stride: no padding, incomplete windows left out.
    pub fn new(kernel: usize) -> Self {
        Self {
            kernel: [kernel; 2],
            stride: [kernel; 2],
            padding: [0; 2],
            ceil_mode: false,
        }
    }
}

/// Maximum over sliding windows of `xs` `[N, C, H, W]`; PyTorch's `max_pool2d`. Padding counts as minus infinity. Of
/// equal maxima in a window the first, row by row, gets the gradient.
///
/// # Errors
/// Where `xs` isn't `[N, C, H, W]`, no window fits, or the padding is more than half the kernel.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tallow_tensor::ops::{self, Pool2dConfig};
///
/// let xs = Tensor::arange(0f32, 16., &Device::Cpu)?.reshape((1, 1, 4, 4))?;
/// let ys = ops::max_pool2d(&xs, &Pool2dConfig::new(2))?;
/// assert_eq!(ys.flatten_all()?.to_vec1::<f32>()?, [5., 7., 13., 15.]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn max_pool2d(xs: &Tensor, config: &Pool2dConfig) -> Result<Tensor> {
    let op = Op::MaxPool2d(MaxPool2d {
        kernel: config.kernel,
        stride: config.stride,
        padding: config.padding,
        ceil_mode: config.ceil_mode,
    });
    run(
        op,
        [xs],
        |[xs], out| kernel::max_pool2d(xs, config, out),
        || portable::max_pool2d(xs, config),
    )
}

/// Mean over sliding windows of `xs` `[N, C, H, W]`; PyTorch's `avg_pool2d`. With `count_include_pad` (PyTorch's
/// default) padding counts as zeros, without it only positions of the input count.
///
/// # Errors
/// As [`max_pool2d`].
pub fn avg_pool2d(xs: &Tensor, config: &Pool2dConfig, count_include_pad: bool) -> Result<Tensor> {
    let op = Op::AvgPool2d(AvgPool2d {
        kernel: config.kernel,
        stride: config.stride,
        padding: config.padding,
        ceil_mode: config.ceil_mode,
        count_include_pad,
    });
    run(
        op,
        [xs],
        |[xs], out| kernel::avg_pool2d(xs, config, count_include_pad, out),
        || portable::avg_pool2d(xs, config, count_include_pad),
    )
}

/// Mean over `out[0] x out[1]` windows that cover `xs` `[N, C, H, W]`: output `i` of `out` reads
/// `floor(i in / out) .. ceil((i + 1) in / out)`; PyTorch's `adaptive_avg_pool2d`. `[1, 1]` is global average pooling.
///
/// # Errors
/// Where `xs` isn't `[N, C, H, W]` with at least one position, or a size is zero.
pub fn adaptive_avg_pool2d(xs: &Tensor, out: [usize; 2]) -> Result<Tensor> {
    let op = Op::AdaptiveAvgPool2d(AdaptiveAvgPool2d { out });
    run(
        op,
        [xs],
        |[xs], out| kernel::adaptive_avg_pool2d(xs, out),
        || portable::adaptive_avg_pool2d(xs, out),
    )
}

/// Maximum over the windows of [`adaptive_avg_pool2d`]; PyTorch's `adaptive_max_pool2d`.
///
/// # Errors
/// As [`adaptive_avg_pool2d`].
pub fn adaptive_max_pool2d(xs: &Tensor, out: [usize; 2]) -> Result<Tensor> {
    let op = Op::AdaptiveMaxPool2d(AdaptiveMaxPool2d { out });
    run(
        op,
        [xs],
        |[xs], out| kernel::adaptive_max_pool2d(xs, out),
        || portable::adaptive_max_pool2d(xs, out),
    )
}
