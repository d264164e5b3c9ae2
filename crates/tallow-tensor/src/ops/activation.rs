//! Activations: each element by itself.

use super::dispatch::plain;
use super::portable::activation as portable;
use candle_core::{Result, Tensor};
use tallow_graph::{Op, op::Gelu};

/// `max(x, 0)`; PyTorch's `relu`. Any shape. The gradient at zero is zero.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tallow_tensor::ops;
///
/// let xs = Tensor::new(&[-1f32, 0., 2.], &Device::Cpu)?;
/// assert_eq!(ops::relu(&xs)?.to_vec1::<f32>()?, [0., 0., 2.]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn relu(xs: &Tensor) -> Result<Tensor> {
    plain(Op::Relu, &[xs], || portable::relu(xs))
}

/// `min(max(x, 0), 6)`; PyTorch's `relu6`. Any shape. The gradient is zero at and outside 0 and 6.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn relu6(xs: &Tensor) -> Result<Tensor> {
    plain(Op::Relu6, &[xs], || portable::relu6(xs))
}

/// `x Phi(x)`, with the distribution function `Phi` of the standard normal (Hendrycks and Gimpel, 2016);
/// PyTorch's `gelu`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn gelu(xs: &Tensor) -> Result<Tensor> {
    let op = Op::Gelu(Gelu { approximate: false });
    plain(op, &[xs], || portable::gelu(xs))
}

/// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`; PyTorch's `gelu(approximate="tanh")`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn gelu_tanh(xs: &Tensor) -> Result<Tensor> {
    let op = Op::Gelu(Gelu { approximate: true });
    plain(op, &[xs], || portable::gelu_tanh(xs))
}

/// `x sigmoid(x)`, also called swish; PyTorch's `silu`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn silu(xs: &Tensor) -> Result<Tensor> {
    plain(Op::Silu, &[xs], || portable::silu(xs))
}

/// `1 / (1 + exp(-x))`; PyTorch's `sigmoid`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn sigmoid(xs: &Tensor) -> Result<Tensor> {
    plain(Op::Sigmoid, &[xs], || portable::sigmoid(xs))
}

/// Hyperbolic tangent; PyTorch's `tanh`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn tanh(xs: &Tensor) -> Result<Tensor> {
    plain(Op::Tanh, &[xs], || portable::tanh(xs))
}

/// `x min(max(x + 3, 0), 6) / 6` (Howard et al., 2019); PyTorch's `hardswish`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn hardswish(xs: &Tensor) -> Result<Tensor> {
    plain(Op::Hardswish, &[xs], || portable::hardswish(xs))
}
