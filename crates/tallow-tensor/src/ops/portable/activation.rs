//! Element-wise activations with PyTorch's gradients, also at their corners.

use candle_core::{Result, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

/// `max(x, 0)`; gradient 0 at zero (candle's own `relu` has 1 there). NaN passes through.
pub(crate) fn relu(xs: &Tensor) -> Result<Tensor> {
    let zeros = xs.zeros_like()?;
    xs.le(&zeros)?.where_cond(&zeros, xs)
}

/// `min(max(x, 0), 6)`; gradient 0 at both corners.
pub(crate) fn relu6(xs: &Tensor) -> Result<Tensor> {
    let six = constant_like(xs, 6.)?;
    relu(&xs.ge(&six)?.where_cond(&six, xs)?)
}

/// `x Phi(x)` with the Gaussian distribution function `Phi`, through `erf`.
pub(crate) fn gelu(xs: &Tensor) -> Result<Tensor> {
    let cdf = ((xs * FRAC_1_SQRT_2)?.erf()? + 1.)?;
    (xs * cdf)? * 0.5
}

/// The tanh approximation of [`gelu`].
pub(crate) fn gelu_tanh(xs: &Tensor) -> Result<Tensor> {
    let cubic = ((xs.sqr()? * xs)? * 0.044715)?;
    let inner = ((xs + cubic)? * FRAC_2_PI.sqrt())?;
    (xs * (inner.tanh()? + 1.)?)? * 0.5
}

/// `x sigmoid(x)`.
pub(crate) fn silu(xs: &Tensor) -> Result<Tensor> {
    xs * sigmoid(xs)?
}

/// `1 / (1 + exp(-x))`, written with tanh so that neither value nor gradient overflows.
pub(crate) fn sigmoid(xs: &Tensor) -> Result<Tensor> {
    ((xs * 0.5)?.tanh()? * 0.5)? + 0.5
}

/// Hyperbolic tangent.
pub(crate) fn tanh(xs: &Tensor) -> Result<Tensor> {
    xs.tanh()
}

/// 0 up to -3, `x` from 3 on, `x (x + 3) / 6` between.
pub(crate) fn hardswish(xs: &Tensor) -> Result<Tensor> {
    let zeros = xs.zeros_like()?;
    let middle = ((xs * (xs + 3.)?)? * (1. / 6.))?;
    let upper = xs.ge(&constant_like(xs, 3.)?)?.where_cond(xs, &middle)?;
    xs.le(&constant_like(xs, -3.)?)?.where_cond(&zeros, &upper)
}

/// A constant of the shape, type and device of `xs`.
pub(crate) fn constant_like(xs: &Tensor, value: f64) -> Result<Tensor> {
    Tensor::full(value, xs.shape(), xs.device())?.to_dtype(xs.dtype())
}
