//! Matrix products.

use super::dispatch::run;
use super::{kernel, portable};
use candle_core::{Result, Tensor};
use tallow_graph::Op;

/// `xs W^T + b`: `xs` `[.., I]`, `weight` `[O, I]`, optional `bias` `[O]`, giving `[.., O]`; PyTorch's `linear`.
///
/// # Errors
/// Where the sizes don't fit.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tallow_tensor::ops;
///
/// let xs = Tensor::new(&[[1f32, 2.]], &Device::Cpu)?;
/// let weight = Tensor::new(&[[1f32, 1.], [0., 1.], [2., 0.]], &Device::Cpu)?;
/// let bias = Tensor::new(&[0f32, 0., 0.5], &Device::Cpu)?;
/// let ys = ops::linear(&xs, &weight, Some(&bias))?;
/// assert_eq!(ys.to_vec2::<f32>()?, [[3., 2., 2.5]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn linear(xs: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let portable = || portable::product::linear(xs, weight, bias);
    match bias {
        None => run(
            Op::Linear,
            [xs, weight],
            |[xs, weight], out| kernel::linear(xs, weight, None, out),
            portable,
        ),
        Some(bias) => run(
            Op::Linear,
            [xs, weight, bias],
            |[xs, weight, bias], out| kernel::linear(xs, weight, Some(bias), out),
            portable,
        ),
    }
}

/// Matrix product: `[.., M, K]` times `[.., K, N]` gives `[.., M, N]`; leading dimensions broadcast. PyTorch's
/// `matmul` for operands of two or more dimensions.
///
/// # Errors
/// Where the sizes don't fit.
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    run(
        Op::MatMul,
        [a, b],
        |[a, b], out| kernel::matmul(a, b, out),
        || portable::product::matmul(a, b),
    )
}
