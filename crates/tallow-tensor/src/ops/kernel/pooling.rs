//! Pools over `[N, C, H, W]`. Maxima keep where they were found.

use candle_core::{Error, Result, Tensor};
use std::sync::{Arc, OnceLock};
use tallow_kernels::pool::{self, AdaptivePool2dGeometry, Pool2dGeometry};

use super::{Kernel, Outcome};
use crate::ops::Pool2dConfig;

/// Maximum over sliding windows.
pub(crate) fn max_pool2d(xs: &Tensor, config: &Pool2dConfig, out: &[usize]) -> Result<Tensor> {
    let geometry = sliding(xs, config)?;
    keeping_indices(
        xs,
        out,
        move |x, y, indices| pool::max_pool2d(&geometry, x, y, indices),
        move |indices, dy, dx| pool::max_pool2d_backward(&geometry, indices, dy, dx),
    )
}

/// Maximum over adaptive windows.
pub(crate) fn adaptive_max_pool2d(xs: &Tensor, out: &[usize]) -> Result<Tensor> {
    let geometry = adaptive(xs, out)?;
    keeping_indices(
        xs,
        out,
        move |x, y, indices| pool::adaptive_max_pool2d(&geometry, x, y, indices),
        move |indices, dy, dx| pool::adaptive_max_pool2d_backward(&geometry, indices, dy, dx),
    )
}

fn keeping_indices<F, B>(xs: &Tensor, out: &[usize], forward: F, backward: B) -> Result<Tensor>
where
    F: Fn(&[f32], &mut [f32], &mut [u32]) -> Outcome<()> + Send + Sync + 'static,
    B: Fn(&[u32], &[f32], &mut [f32]) -> Outcome<()> + Send + Sync + 'static,
{
    let found = Arc::new(OnceLock::new());
    let recall = found.clone();
    Kernel::new(
        "max_pool2d",
        out,
        move |[x], y| {
            let mut indices = vec![0u32; y.len()];
            forward(x, y, &mut indices)?;
            found.get_or_init(|| indices);
            Ok(())
        },
        move |b| {
            let indices = recall.get().map_or(&[][..], Vec::as_slice);
            Ok([b.gradient(0, |dx| backward(indices, b.grad, dx))?])
        },
    )
    .apply([xs])
}

/// Mean over sliding windows.
pub(crate) fn avg_pool2d(
    xs: &Tensor,
    config: &Pool2dConfig,
    count_include_pad: bool,
    out: &[usize],
) -> Result<Tensor> {
    let geometry = sliding(xs, config)?;
    Kernel::new(
        "avg_pool2d",
        out,
        move |[x], y| pool::avg_pool2d(&geometry, count_include_pad, x, y),
        move |b| {
            Ok([b.gradient(0, |dx| {
                pool::avg_pool2d_backward(&geometry, count_include_pad, b.grad, dx)
            })?])
        },
    )
    .apply([xs])
}

/// Mean over adaptive windows.
pub(crate) fn adaptive_avg_pool2d(xs: &Tensor, out: &[usize]) -> Result<Tensor> {
    let geometry = adaptive(xs, out)?;
    Kernel::new(
        "adaptive_avg_pool2d",
        out,
        move |[x], y| pool::adaptive_avg_pool2d(&geometry, x, y),
        move |b| {
            Ok([b.gradient(0, |dx| {
                pool::adaptive_avg_pool2d_backward(&geometry, b.grad, dx)
            })?])
        },
    )
    .apply([xs])
}

fn sliding(xs: &Tensor, config: &Pool2dConfig) -> Result<Pool2dGeometry> {
    let (n, c, h, w) = xs.dims4()?;
    Pool2dGeometry::new(
        n * c,
        [h, w],
        config.kernel,
        config.stride,
        config.padding,
        [1, 1],
        config.ceil_mode,
    )
    .map_err(Error::wrap)
}

fn adaptive(xs: &Tensor, out: &[usize]) -> Result<AdaptivePool2dGeometry> {
    let (n, c, h, w) = xs.dims4()?;
    Ok(AdaptivePool2dGeometry {
        planes: n * c,
        in_size: [h, w],
        out_size: [out[2], out[3]],
    })
}
