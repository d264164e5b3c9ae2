//! Softmax and its logarithm.

use super::dispatch::run;
use super::kernel;
use super::portable::loss as portable;
use candle_core::{Result, Tensor};
use tallow_graph::{
    Op,
    op::{LogSoftmax, Softmax},
};

/// `exp(x) / sum exp(x)` along `dim`, shifted by the maximum so that it can't overflow; PyTorch's `softmax`.
///
/// # Errors
/// Where `xs` has no dimension `dim`.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tallow_tensor::ops;
///
/// let xs = Tensor::new(&[[1000f32, 1000.]], &Device::Cpu)?;
/// assert_eq!(ops::softmax(&xs, 1)?.to_vec2::<f32>()?, [[0.5, 0.5]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn softmax(xs: &Tensor, dim: usize) -> Result<Tensor> {
    run(
        Op::Softmax(Softmax { dim }),
        [xs],
        |[xs], _| kernel::softmax(xs, dim),
        || portable::softmax(xs, dim),
    )
}

/// `x - log sum exp(x)` along `dim`; PyTorch's `log_softmax`.
///
/// # Errors
/// As [`softmax`].
pub fn log_softmax(xs: &Tensor, dim: usize) -> Result<Tensor> {
    run(
        Op::LogSoftmax(LogSoftmax { dim }),
        [xs],
        |[xs], _| kernel::log_softmax(xs, dim),
        || portable::log_softmax(xs, dim),
    )
}
