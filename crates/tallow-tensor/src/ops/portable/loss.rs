//! Softmax, log-softmax and cross entropy.

use crate::ops::CrossEntropyConfig;
use candle_core::{DType, Result, Tensor};

/// `exp(x - max) / sum exp(x - max)` along `dim`.
pub(crate) fn softmax(xs: &Tensor, dim: usize) -> Result<Tensor> {
    let exps = shifted(xs, dim)?.exp()?;
    exps.broadcast_div(&exps.sum_keepdim(dim)?)
}

/// `x - max - log sum exp(x - max)` along `dim`.
pub(crate) fn log_softmax(xs: &Tensor, dim: usize) -> Result<Tensor> {
    let shifted = shifted(xs, dim)?;
    shifted.broadcast_sub(&shifted.exp()?.sum_keepdim(dim)?.log()?)
}

/// The shift only guards against overflow: it cancels, so it takes no gradient (which candle would
/// hand in full to every tied maximum).
fn shifted(xs: &Tensor, dim: usize) -> Result<Tensor> {
    xs.broadcast_sub(&xs.detach().max_keepdim(dim)?)
}

/// Mean over the rows that count of `-sum_c t_c log softmax(logits)_c`.
pub(crate) fn cross_entropy(
    logits: &Tensor,
    targets: &Tensor,
    config: &CrossEntropyConfig,
) -> Result<Tensor> {
    let log_probs = log_softmax(logits, 1)?;
    if targets.dtype().is_int() {
        return with_indices(&log_probs, targets, config);
    }
    let (n, classes) = log_probs.dims2()?;
    let smooth = config.label_smoothing;
    let targets = targets
        .to_dtype(log_probs.dtype())?
        .affine(1. - smooth, smooth / classes as f64)?;
    (log_probs * targets)?.sum_all()? * (-1. / n as f64)
}

fn with_indices(
    log_probs: &Tensor,
    targets: &Tensor,
    config: &CrossEntropyConfig,
) -> Result<Tensor> {
    let (n, classes) = log_probs.dims2()?;
    let (ids, counted) = split_ignored(targets, config.ignore_index)?;
    let counted = counted.to_dtype(log_probs.dtype())?;
    let picked = log_probs
        .contiguous()?
        .gather(&ids.reshape((n, 1))?, 1)?
        .reshape(n)?;
    let smooth = config.label_smoothing;
    let spread = (log_probs.sum(1)? * (smooth / classes as f64))?;
    let rows = ((picked * (1. - smooth))? + spread)?;
    (rows * &counted)?
        .sum_all()?
        .neg()?
        .div(&counted.sum_all()?)
}

/// Indices with the ignored ones made 0, and a mask that is 0 for them.
fn split_ignored(targets: &Tensor, ignore_index: Option<i64>) -> Result<(Tensor, Tensor)> {
    let ids = targets.to_dtype(DType::I64)?;
    let ignored = match ignore_index {
        Some(index) => ids.eq(&Tensor::full(index, ids.shape(), ids.device())?)?,
        None => ids.zeros_like()?.to_dtype(DType::U8)?,
    };
    let counted = ignored.eq(&ignored.zeros_like()?)?;
    let ids = ignored.where_cond(&ids.zeros_like()?, &ids)?;
    Ok((ids.to_dtype(DType::U32)?, counted))
}
