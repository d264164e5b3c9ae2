//! Cross entropy, keeping the probabilities for the gradient.

use candle_core::{Result, Tensor};
use std::sync::{Arc, OnceLock};
use tallow_kernels::loss::{self, CrossEntropy, Targets};

use super::Kernel;

/// What each row should be.
pub(crate) enum Labels {
    /// Class indices; `None` where a row is ignored.
    Classes(Vec<Option<u32>>),
    /// Probabilities.
    Soft(Vec<f32>),
}

/// Stands for an ignored row. No table of classes is that long.
const IGNORED: u32 = u32::MAX;

/// Mean cross entropy of `logits` `[N, C]`; a scalar.
pub(crate) fn cross_entropy(
    logits: &Tensor,
    labels: Labels,
    label_smoothing: f64,
) -> Result<Tensor> {
    let (rows, classes) = logits.dims2()?;
    let shape = [rows, classes];
    let (config, labels) = match labels {
        Labels::Soft(values) => (settings(label_smoothing, None), Owned::Soft(values)),
        Labels::Classes(classes) => {
            let ids = classes.iter().map(|class| class.unwrap_or(IGNORED));
            let ignored = Some(i64::from(IGNORED));
            (
                settings(label_smoothing, ignored),
                Owned::Indices(ids.collect()),
            )
        }
    };
    let labels = Arc::new(labels);
    let recall = labels.clone();
    let probabilities = Arc::new(OnceLock::new());
    let keep = probabilities.clone();
    Kernel::new(
        "cross_entropy",
        &[],
        move |[logits], y| {
            let mut probs = vec![0f32; logits.len()];
            y[0] = loss::cross_entropy(&config, shape, logits, labels.targets(), &mut probs)?;
            keep.get_or_init(|| probs);
            Ok(())
        },
        move |b| {
            let probs = probabilities.get().map_or(&[][..], Vec::as_slice);
            let d_loss = b.grad[0];
            Ok([b.gradient(0, |d_logits| {
                loss::cross_entropy_backward(
                    &config,
                    shape,
                    probs,
                    recall.targets(),
                    d_loss,
                    d_logits,
                )
            })?])
        },
    )
    .apply([logits])
}

fn settings(label_smoothing: f64, ignore_index: Option<i64>) -> CrossEntropy {
    CrossEntropy {
        label_smoothing,
        ignore_index,
    }
}

enum Owned {
    Indices(Vec<u32>),
    Soft(Vec<f32>),
}

impl Owned {
    fn targets(&self) -> Targets<'_> {
        match self {
            Self::Indices(ids) => Targets::Indices(ids),
            Self::Soft(values) => Targets::Soft(values),
        }
    }
}
