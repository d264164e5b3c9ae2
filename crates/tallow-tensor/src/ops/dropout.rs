//! Random omission, keyed by (seed, step, draw, element).

use super::dispatch::plain;
use crate::rng::{self, Purpose, Stream};
use candle_core::{Result, Tensor};
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
    plain(Op::Dropout(Dropout { p, draw }), &[xs], || {
        xs.mul(&mask(
            xs,
            xs.dims(),
            p,
            rng::draw_key(Purpose::Dropout, draw),
        )?)
    })
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
    plain(Op::DropPath(DropPath { p, draw }), &[xs], || {
        let mut shape = vec![1; xs.rank()];
        shape[0] = xs.dims()[0];
        xs.broadcast_mul(&mask(
            xs,
            &shape,
            p,
            rng::draw_key(Purpose::DropPath, draw),
        )?)
    })
}

/// 0 or `1 / (1 - p)`.
fn mask(like: &Tensor, shape: &[usize], p: f64, key: u64) -> Result<Tensor> {
    let mut stream = Stream::new(key);
    let kept = 1. / (1. - p);
    let values: Vec<f64> = (0..shape.iter().product())
        .map(|_| if stream.chance(p) { 0. } else { kept })
        .collect();
    Tensor::from_vec(values, shape, like.device())?.to_dtype(like.dtype())
}
