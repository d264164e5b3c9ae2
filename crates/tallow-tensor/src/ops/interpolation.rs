//! Resizing images.

use super::dispatch::run;
use super::{kernel, portable};
use candle_core::{Result, Tensor};
use tallow_graph::Op;
use tallow_graph::op::Interpolate;
pub use tallow_graph::op::Interpolation;

/// Resizes `xs` `[N, C, H, W]` to `[N, C, size..]`; PyTorch's `interpolate` with a given size.
///
/// # Errors
/// Where `xs` isn't `[N, C, H, W]` or a size is zero.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tallow_tensor::ops::{self, Interpolation};
///
/// let xs = Tensor::new(&[[[[0f32, 2.]]]], &Device::Cpu)?;
/// let mode = Interpolation::Bilinear { align_corners: true };
/// let ys = ops::interpolate(&xs, [1, 3], mode)?.flatten_all()?;
/// assert_eq!(ys.to_vec1::<f32>()?, [0., 1., 2.]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn interpolate(xs: &Tensor, size: [usize; 2], mode: Interpolation) -> Result<Tensor> {
    let op = Op::Interpolate(Interpolate { size, mode });
    run(
        op,
        [xs],
        |[xs], out| kernel::interpolate(xs, mode, out),
        || portable::interpolation::interpolate(xs, size, mode),
    )
}
