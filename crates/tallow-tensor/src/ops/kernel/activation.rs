//! Activations; the gradient follows from the input.

use candle_core::{Result, Tensor};
use tallow_kernels::activation::{self, Activation};

use super::Kernel;

/// `act(xs)`, element by element.
pub(crate) fn activation(act: Activation, xs: &Tensor, out: &[usize]) -> Result<Tensor> {
    Kernel::new(
        "activation",
        out,
        move |[x], y| activation::forward(act, x, y),
        move |b| {
            let [x] = b.inputs;
            Ok([b.gradient(0, |dx| activation::backward(act, x, b.grad, dx))?])
        },
    )
    .apply([xs])
}
