//! Random omission, keyed by (seed, step, draw, element).

use super::dispatch::run;
use super::kernel;
use crate::rng::{self, Purpose};
use candle_core::{DType, Device, Result, Tensor};
use tallow_graph::{
    Op,
    op::{DropPath, Dropout},
};

/// Zeroes each element of `xs` with probability `p` and multiplies the others by `1 / (1 - p)` (Srivastava et al.,
/// 2014); PyTorch's `dropout`. Any shape. The identity where `train` is false or `p` is 0.
///
/// Which elements is a function of the thread's [`rng::state`], so that a step can be repeated: it takes one
/// [`rng::next_draw`].
///
/// # Errors
/// Where `p` isn't `0 <= p < 1`, or `xs` holds no floating-point numbers.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use tallow_tensor::{ops, rng};
///
/// let xs = Tensor::ones(100, DType::F32, &Device::Cpu)?;
/// rng::begin_step(42, 0);
/// let first = ops::dropout(&xs, 0.5, true)?.to_vec1::<f32>()?;
/// rng::begin_step(42, 0);
/// assert_eq!(ops::dropout(&xs, 0.5, true)?.to_vec1::<f32>()?, first);
/// assert!(first.iter().all(|&v| v == 0. || v == 2.));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn dropout(xs: &Tensor, p: f64, train: bool) -> Result<Tensor> {
    if !train || p == 0. {
        return Ok(xs.clone());
    }
    let draw = rng::next_draw();
    let key = rng::draw_key(Purpose::Dropout, draw);
    run(
        Op::Dropout(Dropout { p, draw }),
        [xs],
        |[xs], _| kernel::dropout(xs, p, key),
        || xs.mul(&mask(xs, xs.dims(), |ones| kernel::dropout(ones, p, key))?),
    )
}

/// Zeroes each sample (index of the first dimension) of `xs` with probability `p` and multiplies the others by
/// `1 / (1 - p)` (stochastic depth, Huang et al., 2016); timm's `drop_path`. The identity where `train` is false or
/// `p` is 0. Draws as [`dropout`] does.
///
/// # Errors
/// As [`dropout`], and where `xs` is a scalar.
pub fn drop_path(xs: &Tensor, p: f64, train: bool) -> Result<Tensor> {
    if !train || p == 0. {
        return Ok(xs.clone());
    }
    let draw = rng::next_draw();
    let key = rng::draw_key(Purpose::DropPath, draw);
    run(
        Op::DropPath(DropPath { p, draw }),
        [xs],
        |[xs], _| kernel::drop_path(xs, p, key),
        || {
            let mut shape = vec![1; xs.rank()];
            shape[0] = xs.dims()[0];
            xs.broadcast_mul(&mask(xs, &shape, |ones| kernel::drop_path(ones, p, key))?)
        },
    )
}

/// 0 or `1 / (1 - p)`: what the kernel makes of ones, so that the mask is the same on every device.
fn mask(
    like: &Tensor,
    shape: &[usize],
    drop: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let ones = Tensor::ones(shape, DType::F32, &Device::Cpu)?;
    drop(&ones)?
        .to_dtype(like.dtype())?
        .to_device(like.device())
}
