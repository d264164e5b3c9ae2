//! Losses.

use super::dispatch::{invalid, run};
use super::kernel::{self, Labels};
use super::portable;
use candle_core::{DType, Result, Tensor};
use tallow_graph::Op;
pub use tallow_graph::op::CrossEntropy as CrossEntropyConfig;

/// Mean cross entropy of `logits` `[N, C]` and `targets`: class indices `[N]` (integers) or probabilities
/// `[N, C]` (floats); a scalar. PyTorch's `cross_entropy` with `reduction="mean"`, including label smoothing
/// (Szegedy et al., 2015) and `ignore_index`.
///
/// With indices the mean is over the samples that are not ignored, and NaN if all are; with probabilities over
/// all `N`. Probabilities get no gradient.
///
/// # Errors
/// Where shapes don't fit, or a class index is out of range (checked on the CPU).
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tallow_tensor::ops::{self, CrossEntropyConfig};
///
/// let logits = Tensor::new(&[[0f32, 0.]], &Device::Cpu)?;
/// let targets = Tensor::new(&[1u32], &Device::Cpu)?;
/// let loss = ops::cross_entropy(&logits, &targets, &CrossEntropyConfig::default())?;
/// assert!((loss.to_scalar::<f32>()? - 2f32.ln()).abs() < 1e-6);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn cross_entropy(
    logits: &Tensor,
    targets: &Tensor,
    config: &CrossEntropyConfig,
) -> Result<Tensor> {
    let op = Op::CrossEntropy(config.clone());
    let kernels = |[logits, targets]: &[Tensor; 2], _: &[usize]| {
        let labels = match targets.dtype().is_int() {
            true => Labels::Classes(classes(logits, targets, config)?),
            false => Labels::Soft(targets.flatten_all()?.to_vec1()?),
        };
        kernel::cross_entropy(logits, labels, config.label_smoothing)
    };
    run(op, [logits, targets], kernels, || {
        // On other devices a look at the values would cost a wait for the device.
        if targets.dtype().is_int() && targets.device().is_cpu() {
            classes(logits, targets, config)?;
        }
        portable::loss::cross_entropy(logits, &targets.detach(), config)
    })
}

/// The class of each row, `None` where it is ignored.
fn classes(
    logits: &Tensor,
    targets: &Tensor,
    config: &CrossEntropyConfig,
) -> Result<Vec<Option<u32>>> {
    let (_, classes) = logits.dims2()?;
    let class = |(row, class): (usize, i64)| {
        if config.ignore_index == Some(class) {
            return Ok(None);
        }
        let known = u32::try_from(class)
            .ok()
            .filter(|&id| (id as usize) < classes);
        known.map(Some).ok_or_else(|| {
            invalid(
                &Op::CrossEntropy(config.clone()),
                &[logits, targets],
                format!("target {row} is class {class}, logits have classes 0..{classes}"),
                "correct the labels, or give the model more classes",
            )
        })
    };
    let ids = targets.to_dtype(DType::I64)?.to_vec1::<i64>()?;
    ids.into_iter().enumerate().map(class).collect()
}
