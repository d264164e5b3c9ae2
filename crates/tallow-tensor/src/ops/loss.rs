//! Losses.

use super::dispatch::{invalid, plain};
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
    plain(op, &[logits, targets], || {
        check_classes(logits, targets, config)?;
        portable::loss::cross_entropy(logits, &targets.detach(), config)
    })
}

/// On other devices the look at the values would cost a wait for the device.
fn check_classes(logits: &Tensor, targets: &Tensor, config: &CrossEntropyConfig) -> Result<()> {
    if !targets.dtype().is_int() || !targets.device().is_cpu() {
        return Ok(());
    }
    let (_, classes) = logits.dims2()?;
    let known = targets.to_dtype(DType::I64)?.to_vec1::<i64>()?;
    let fits = |&class: &i64| {
        config.ignore_index == Some(class) || usize::try_from(class).is_ok_and(|id| id < classes)
    };
    match known.iter().enumerate().find(|(_, class)| !fits(class)) {
        None => Ok(()),
        Some((row, class)) => Err(invalid(
            &Op::CrossEntropy(config.clone()),
            &[logits, targets],
            format!("target {row} is class {class}, logits have classes 0..{classes}"),
            "correct the labels, or give the model more classes",
        )),
    }
}
