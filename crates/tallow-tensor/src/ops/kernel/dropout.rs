//! Random omission. The mask is a function of the key, so the gradient draws it again.

use candle_core::{Result, Tensor};
use tallow_kernels::dropout;

use super::Kernel;

/// Zeroes elements.
pub(crate) fn dropout(xs: &Tensor, p: f64, key: u64) -> Result<Tensor> {
    Kernel::new(
        "dropout",
        xs.dims(),
        move |[x], y| dropout::dropout(key, p, x, y),
        move |b| Ok([b.gradient(0, |dx| dropout::dropout_backward(key, p, b.grad, dx))?]),
    )
    .apply([xs])
}

/// Zeroes samples.
pub(crate) fn drop_path(xs: &Tensor, p: f64, key: u64) -> Result<Tensor> {
    let samples = xs.dims()[0];
    let shape = [samples, xs.elem_count() / samples.max(1)];
    Kernel::new(
        "drop_path",
        xs.dims(),
        move |[x], y| dropout::drop_path(key, p, shape, x, y),
        move |b| {
            Ok([b.gradient(0, |dx| {
                dropout::drop_path_backward(key, p, shape, b.grad, dx)
            })?])
        },
    )
    .apply([xs])
}
