//! Activations: each element by itself.

use super::dispatch::run;
use super::kernel;
use super::portable::activation as portable;
use candle_core::{Result, Tensor};
use tallow_graph::{Op, op::Gelu};
use tallow_kernels::activation::Activation;

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
    apply(Op::Relu, Activation::Relu, xs, portable::relu)
}

/// `min(max(x, 0), 6)`; PyTorch's `relu6`. Any shape. The gradient is zero at and outside 0 and 6.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn relu6(xs: &Tensor) -> Result<Tensor> {
    apply(Op::Relu6, Activation::Relu6, xs, portable::relu6)
}

/// `x Phi(x)`, with the distribution function `Phi` of the standard normal (Hendrycks and Gimpel, 2016);
/// PyTorch's `gelu`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn gelu(xs: &Tensor) -> Result<Tensor> {
    let op = Op::Gelu(Gelu { approximate: false });
    apply(op, Activation::Gelu, xs, portable::gelu)
}

/// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`; PyTorch's `gelu(approximate="tanh")`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn gelu_tanh(xs: &Tensor) -> Result<Tensor> {
    let op = Op::Gelu(Gelu { approximate: true });
    apply(op, Activation::GeluTanh, xs, portable::gelu_tanh)
}

/// `x sigmoid(x)`, also called swish; PyTorch's `silu`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn silu(xs: &Tensor) -> Result<Tensor> {
    apply(Op::Silu, Activation::Silu, xs, portable::silu)
}

/// `1 / (1 + exp(-x))`; PyTorch's `sigmoid`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn sigmoid(xs: &Tensor) -> Result<Tensor> {
    apply(Op::Sigmoid, Activation::Sigmoid, xs, portable::sigmoid)
}

/// Hyperbolic tangent; PyTorch's `tanh`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn tanh(xs: &Tensor) -> Result<Tensor> {
    apply(Op::Tanh, Activation::Tanh, xs, portable::tanh)
}

/// `x min(max(x + 3, 0), 6) / 6` (Howard et al., 2019); PyTorch's `hardswish`. Any shape.
///
/// # Errors
/// Where `xs` holds no floating-point numbers.
pub fn hardswish(xs: &Tensor) -> Result<Tensor> {
    apply(
        Op::Hardswish,
        Activation::Hardswish,
        xs,
        portable::hardswish,
    )
}

fn apply(
    op: Op,
    act: Activation,
    xs: &Tensor,
    portable: fn(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    run(
        op,
        [xs],
        |[xs], out| kernel::activation(act, xs, out),
        || portable(xs),
    )
}
