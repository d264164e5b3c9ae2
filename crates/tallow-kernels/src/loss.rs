//! Softmax cross entropy in one pass, PyTorch's `cross_entropy` with `reduction="mean"`.
//!
//! With `logp` the row-wise log-softmax of the logits and `e` the label smoothing, a row's loss is
//! `-sum over c of t'[c] logp[c]` with `t' = (1 - e) t + e / C`, where `t` is the row's target
//! distribution, or 1 at its class index and 0 elsewhere.

use crate::error::{Error, Result, check_len, checked_product};
use crate::lanes;
use crate::math;
use crate::parallel::{Rows, for_each, grain, reduce, rows};
use crate::simd::dispatch;
use crate::softmax::exponentials;

/// Settings of the loss.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CrossEntropy {
    /// Share of each target that is spread evenly over all classes (Szegedy et al. 2016); 0 to 1.
    pub label_smoothing: f64,
    /// Class index whose rows count for nothing: neither in the loss nor in the gradient nor in
    /// the number that the mean divides by. Without effect where it is negative, for a target
    /// never is.
    pub ignore_index: Option<i64>,
}

/// What each row should be.
#[derive(Debug, Clone, Copy)]
pub enum Targets<'a> {
    /// `[rows]` class indices.
    Indices(&'a [u32]),
    /// `[rows, classes]` probabilities, not checked to sum to 1.
    Soft(&'a [f32]),
}

impl CrossEntropy {
    fn check(
        &self,
        kernel: &'static str,
        [count, classes]: [usize; 2],
        targets: Targets<'_>,
    ) -> Result<()> {
        let problem = |problem: String| Err(Error::Geometry { kernel, problem });
        if classes == 0 {
            return problem(format!(
                "logits of [{count}, 0] have no class to choose from"
            ));
        }
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            return Err(Error::Parameter {
                kernel,
                parameter: "label_smoothing",
                found: self.label_smoothing,
                allowed: "0 to 1",
            });
        }
        match targets {
            Targets::Soft(soft) => {
                if let Some(index @ 0..) = self.ignore_index {
                    return problem(format!(
                        "ignore_index {index} means a class index, but the targets are \
                         probabilities; leave it out, or pass indices"
                    ));
                }
                check_len(
                    kernel,
                    "targets",
                    soft,
                    checked_product(kernel, &[count, classes])?,
                )
            }
            Targets::Indices(indices) => {
                check_len(kernel, "targets", indices, count)?;
                let wrong = |&(_, &class): &(usize, &u32)| {
                    class as usize >= classes && !self.ignores(class)
                };
                match indices.iter().enumerate().find(wrong) {
                    None => Ok(()),
                    Some((row, &class)) => Err(Error::Index {
                        kernel,
                        row,
                        value: class.into(),
                        bound: classes,
                    }),
                }
            }
        }
    }

    fn ignores(&self, class: u32) -> bool {
        self.ignore_index == Some(i64::from(class))
    }

    /// Rows that the mean divides by.
    fn counted(&self, count: usize, targets: Targets<'_>) -> usize {
        match targets {
            Targets::Soft(_) => count,
            Targets::Indices(indices) => indices.iter().filter(|&&i| !self.ignores(i)).count(),
        }
    }
}

/// Mean loss of `logits` of `[rows, classes]` over the rows that are not ignored. Writes the
/// softmax of the logits, `[rows, classes]`, for [`cross_entropy_backward`].
///
/// Where no row counts (none at all, or all ignored) the mean is that of nothing: NaN, as in
/// PyTorch, with gradients of 0.
///
/// # Errors
/// [`Error::Index`] for a class that doesn't exist and isn't the ignored one, naming the row;
/// [`Error::Length`] for a slice of another length; [`Error::Parameter`] for a smoothing outside 0
/// to 1; [`Error::Geometry`] for no classes, or an ignored index with soft targets. Nothing is
/// written then.
pub fn cross_entropy(
    config: &CrossEntropy,
    shape: [usize; 2],
    logits: &[f32],
    targets: Targets<'_>,
    probs: &mut [f32],
) -> Result<f32> {
    const KERNEL: &str = "cross_entropy";
    let [count, classes] = shape;
    let len = checked_product(KERNEL, &shape)?;
    check_len(KERNEL, "logits", logits, len)?;
    check_len(KERNEL, "probs", probs, len)?;
    config.check(KERNEL, shape, targets)?;
    let data = (rows(logits, classes), rows(probs, classes));
    let leaf = |first, (x, y): (Rows<&[f32]>, Rows<&mut [f32]>)| {
        loss_leaf(config, classes, first, x.data, targets, y.data)
    };
    let sum = reduce(count, grain(classes), data, leaf, |a, b| a + b).unwrap_or(0.0);
    Ok((sum / config.counted(count, targets) as f64) as f32)
}

dispatch! {
    /// Sum of the losses of a leaf's rows, counted from `first` on.
    fn loss_leaf<I>(
        config: &CrossEntropy,
        classes: usize,
        first: usize,
        logits: &[f32],
        targets: Targets<'_>,
        probs: &mut [f32],
    ) -> f64 {
        let smoothing = config.label_smoothing;
        let mut loss = 0.0;
        let rows = logits.chunks_exact(classes).zip(probs.chunks_exact_mut(classes));
        for (row, (x, y)) in rows.enumerate() {
            let (largest, sum) = exponentials::<I>(x, y);
            let factor = (1.0 / sum) as f32;
            for y in y {
                *y *= factor;
            }
            let log_total = math::ln_f64(sum) + f64::from(largest);
            // Weight and weighted sum of the logits under the target distribution.
            let (weight, expected) = match targets {
                Targets::Indices(indices) => {
                    let class = indices[first + row];
                    if config.ignores(class) {
                        continue;
                    }
                    (1.0, f64::from(x[class as usize]))
                }
                Targets::Soft(soft) => {
                    let soft = &soft[(first + row) * classes..][..classes];
                    (lanes::sum::<I>(soft), lanes::dot::<I>(soft, x))
                }
            };
            loss += (1.0 - smoothing) * (weight * log_total - expected);
            if smoothing > 0.0 {
                loss += smoothing * (log_total - lanes::sum::<I>(x) / classes as f64);
            }
        }
        loss
    }
}

/// Gradient of [`cross_entropy`] by the logits, times `d_loss`, from the softmax `probs` that it
/// wrote: `d_logits = (probs sum(t') - t') d_loss / counted rows`, and 0 in ignored rows.
///
/// # Errors
/// As [`cross_entropy`].
pub fn cross_entropy_backward(
    config: &CrossEntropy,
    shape: [usize; 2],
    probs: &[f32],
    targets: Targets<'_>,
    d_loss: f32,
    d_logits: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "cross_entropy_backward";
    let [count, classes] = shape;
    let len = checked_product(KERNEL, &shape)?;
    check_len(KERNEL, "probs", probs, len)?;
    check_len(KERNEL, "d_logits", d_logits, len)?;
    config.check(KERNEL, shape, targets)?;
    let scale = d_loss / config.counted(count, targets) as f32;
    let data = (rows(probs, classes), rows(d_logits, classes));
    for_each(count, grain(classes), data, |first, (probs, d_logits)| {
        gradient_leaf(
            config,
            classes,
            first,
            probs.data,
            targets,
            scale,
            d_logits.data,
        );
    });
    Ok(())
}

dispatch! {
    fn gradient_leaf<I>(
        config: &CrossEntropy,
        classes: usize,
        first: usize,
        probs: &[f32],
        targets: Targets<'_>,
        scale: f32,
        d_logits: &mut [f32],
    ) {
        let kept = (1.0 - config.label_smoothing) as f32;
        let spread = (config.label_smoothing / classes as f64) as f32;
        let rows = probs.chunks_exact(classes).zip(d_logits.chunks_exact_mut(classes));
        for (row, (probs, dx)) in rows.enumerate() {
            match targets {
                Targets::Indices(indices) => {
                    let class = indices[first + row];
                    if config.ignores(class) {
                        dx.fill(0.0);
                        continue;
                    }
                    for (dx, &p) in dx.iter_mut().zip(probs) {
                        *dx = (p - spread) * scale;
                    }
                    let class = class as usize;
                    dx[class] = (probs[class] - spread - kept) * scale;
                }
                Targets::Soft(soft) => {
                    let soft = &soft[(first + row) * classes..][..classes];
                    let weight = kept * lanes::sum::<I>(soft) as f32 + spread * classes as f32;
                    for ((dx, &p), &t) in dx.iter_mut().zip(probs).zip(soft) {
                        *dx = (p * weight - kept * t - spread) * scale;
                    }
                }
            }
        }
    }
}
