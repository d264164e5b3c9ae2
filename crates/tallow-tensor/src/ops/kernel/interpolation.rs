//! Resizing images.

use candle_core::{Result, Tensor};
use tallow_kernels::interpolate::{self, Interpolate2d, Mode};

use super::Kernel;
use crate::ops::Interpolation;

/// Resizes `xs` `[N, C, H, W]` to `out`.
pub(crate) fn interpolate(xs: &Tensor, mode: Interpolation, out: &[usize]) -> Result<Tensor> {
    let (n, c, h, w) = xs.dims4()?;
    let geometry = Interpolate2d {
        planes: n * c,
        in_size: [h, w],
        out_size: [out[2], out[3]],
        mode: match mode {
            Interpolation::Nearest => Mode::Nearest,
            Interpolation::Bilinear { align_corners } => Mode::Bilinear { align_corners },
        },
    };
    Kernel::new(
        "interpolate",
        out,
        move |[x], y| interpolate::forward(&geometry, x, y),
        move |b| Ok([b.gradient(0, |dx| interpolate::backward(&geometry, b.grad, dx))?]),
    )
    .apply([xs])
}
