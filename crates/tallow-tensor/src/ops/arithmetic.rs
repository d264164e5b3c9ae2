//! Arithmetic with broadcasting.

use super::dispatch::run;
use super::kernel;
use candle_core::{Result, Tensor};
use tallow_graph::{
    Op,
    op::{AddScalar, MulScalar},
};
use tallow_kernels::broadcast::Binary;

/// `a + b`; sizes must be equal or 1, compared from the last dimension (PyTorch's broadcasting).
///
/// # Errors
/// Where the shapes don't broadcast or the element types differ.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tallow_tensor::ops;
///
/// let a = Tensor::new(&[[1f32, 2.], [3., 4.]], &Device::Cpu)?;
/// let b = Tensor::new(&[10f32, 20.], &Device::Cpu)?;
/// assert_eq!(ops::add(&a, &b)?.to_vec2::<f32>()?, [[11., 22.], [13., 24.]]);
///
/// let c = Tensor::new(&[1f32, 2., 3.], &Device::Cpu)?;
/// let error = ops::add(&a, &c).unwrap_err().to_string();
/// assert!(error.contains("add(a: f32[2, 2], b: f32[3])"));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(Op::Add, Binary::Add, a, b, Tensor::broadcast_add)
}

/// `a - b`; broadcasts as [`add`] does.
///
/// # Errors
/// As [`add`].
pub fn sub(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(Op::Sub, Binary::Sub, a, b, Tensor::broadcast_sub)
}

/// `a * b`, element by element; broadcasts as [`add`] does.
///
/// # Errors
/// As [`add`].
pub fn mul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(Op::Mul, Binary::Mul, a, b, Tensor::broadcast_mul)
}

/// `a / b`, element by element; broadcasts as [`add`] does.
///
/// # Errors
/// As [`add`].
pub fn div(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(Op::Div, Binary::Div, a, b, Tensor::broadcast_div)
}

/// `xs + value`. Any shape.
///
/// # Errors
/// Where candle doesn't support the element type.
pub fn add_scalar(xs: &Tensor, value: f64) -> Result<Tensor> {
    let op = Op::AddScalar(AddScalar { value });
    run(
        op,
        [xs],
        |[xs], out| kernel::add_scalar(xs, value, out),
        || xs.affine(1., value),
    )
}

/// `xs * value`. Any shape.
///
/// # Errors
/// Where candle doesn't support the element type.
pub fn mul_scalar(xs: &Tensor, value: f64) -> Result<Tensor> {
    let op = Op::MulScalar(MulScalar { value });
    let portable = || {
        if value == 0. {
            // candle takes `affine(0, ..)` as the end of the tape, and gives no gradient in place of a zero one.
            return xs.mul(&xs.zeros_like()?);
        }
        xs.affine(value, 0.)
    };
    run(
        op,
        [xs],
        |[xs], out| kernel::mul_scalar(xs, value, out),
        portable,
    )
}

fn binary(
    op: Op,
    kind: Binary,
    a: &Tensor,
    b: &Tensor,
    portable: fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    run(
        op,
        [a, b],
        |[a, b], out| kernel::binary(kind, a, b, out),
        || portable(a, b),
    )
}
