//! Batch, layer and group normalisation, keeping the statistics that their gradients need.

use candle_core::{Result, Tensor};
use std::sync::{Arc, OnceLock};
use tallow_kernels::norm;
use tallow_kernels::shape::ChannelShape;

use super::tape::Gradient;
use super::{Backward, Kernel, Outcome};

/// Mean and inverse standard deviation of each group of elements, written by the forward pass.
type Statistics = Arc<OnceLock<[Vec<f32>; 2]>>;

/// Reads what the forward pass kept. The backward pass can't come first.
fn kept(statistics: &Statistics) -> (&[f32], &[f32]) {
    statistics
        .get()
        .map_or((&[], &[]), |[mean, invstd]| (mean, invstd))
}

/// The three gradients that norms compute together.
fn gradients(
    pass: &Backward<'_, 3>,
    fill: impl FnOnce(&mut [f32], &mut [f32], &mut [f32]) -> Outcome<()>,
) -> Outcome<[Option<Gradient>; 3]> {
    let [mut dx, mut dgamma, mut dbeta] = pass.inputs.map(|input| vec![0f32; input.len()]);
    fill(&mut dx, &mut dgamma, &mut dbeta)?;
    Ok([
        pass.values(0, dx),
        pass.values(1, dgamma),
        pass.values(2, dbeta),
    ])
}

pub(super) fn channels(xs: &Tensor) -> ChannelShape {
    let dims = xs.dims();
    ChannelShape::new(dims[0], dims[1], dims[2..].iter().product())
}

/// Normalises by the statistics of the batch. Also gives those: the mean and the unbiased variance, `[C]` each.
pub(crate) fn batch_norm_train(
    [xs, weight, bias]: [&Tensor; 3],
    eps: f64,
    out: &[usize],
) -> Result<(Tensor, [Tensor; 2])> {
    let shape = channels(xs);
    let statistics = Statistics::default();
    let unbiased = Arc::new(OnceLock::new());
    let (keep, recall, variance) = (statistics.clone(), statistics.clone(), unbiased.clone());
    let ys = Kernel::new(
        "batch_norm",
        out,
        move |[x, gamma, beta], y| {
            let [mut mean, mut invstd, mut var] = [(); 3].map(|()| vec![0f32; shape.channels]);
            norm::batch_norm_train(
                &shape,
                x,
                gamma,
                beta,
                eps,
                y,
                &mut mean,
                &mut invstd,
                &mut var,
            )?;
            keep.get_or_init(|| [mean, invstd]);
            variance.get_or_init(|| var);
            Ok(())
        },
        move |b| {
            let [x, gamma, _] = b.inputs;
            let (mean, invstd) = kept(&recall);
            gradients(b, |dx, dgamma, dbeta| {
                norm::batch_norm_backward(&shape, x, b.grad, gamma, mean, invstd, dx, dgamma, dbeta)
            })
        },
    )
    .apply([xs, weight, bias])?;
    let vector = |values: &[f32]| Tensor::from_slice(values, values.len(), xs.device());
    let mean = vector(kept(&statistics).0)?;
    let var = vector(unbiased.get().map_or(&[], Vec::as_slice))?;
    Ok((ys, [mean, var]))
}

/// Normalises by the running statistics, which get no gradient.
pub(crate) fn batch_norm_eval(
    [xs, weight, bias, mean, var]: [&Tensor; 5],
    eps: f64,
    out: &[usize],
) -> Result<Tensor> {
    let shape = channels(xs);
    let running: Arc<[Vec<f32>; 2]> = Arc::new([mean.to_vec1()?, var.to_vec1()?]);
    let recall = running.clone();
    Kernel::new(
        "batch_norm",
        out,
        move |[x, gamma, beta], y| {
            let [mean, var] = &*running;
            norm::batch_norm_eval(&shape, x, gamma, beta, mean, var, eps, y)
        },
        move |b| {
            let [x, gamma, _] = b.inputs;
            let [mean, var] = &*recall;
            gradients(b, |dx, dgamma, dbeta| {
                norm::batch_norm_backward_eval(
                    &shape, x, b.grad, gamma, mean, var, eps, dx, dgamma, dbeta,
                )
            })
        },
    )
    .apply([xs, weight, bias])
}

/// Normalises over the trailing dimensions, those of `weight`.
pub(crate) fn layer_norm(
    xs: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f64,
    out: &[usize],
) -> Result<Tensor> {
    let width = weight.elem_count();
    let shape = [xs.elem_count() / width, width];
    let statistics = Statistics::default();
    let keep = statistics.clone();
    Kernel::new(
        "layer_norm",
        out,
        move |[x, gamma, beta], y| {
            let [mut mean, mut invstd] = [(); 2].map(|()| vec![0f32; shape[0]]);
            norm::layer_norm(shape, x, gamma, beta, eps, y, &mut mean, &mut invstd)?;
            keep.get_or_init(|| [mean, invstd]);
            Ok(())
        },
        move |b| {
            let [x, gamma, _] = b.inputs;
            let (mean, invstd) = kept(&statistics);
            gradients(b, |dx, dgamma, dbeta| {
                norm::layer_norm_backward(shape, x, b.grad, gamma, mean, invstd, dx, dgamma, dbeta)
            })
        },
    )
    .apply([xs, weight, bias])
}

/// Normalises over groups of channels and all positions of one sample.
pub(crate) fn group_norm(
    xs: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    groups: usize,
    eps: f64,
    out: &[usize],
) -> Result<Tensor> {
    let shape = channels(xs);
    let statistics = Statistics::default();
    let keep = statistics.clone();
    Kernel::new(
        "group_norm",
        out,
        move |[x, gamma, beta], y| {
            let [mut mean, mut invstd] = [(); 2].map(|()| vec![0f32; shape.batch * groups]);
            norm::group_norm(
                &shape,
                groups,
                x,
                gamma,
                beta,
                eps,
                y,
                &mut mean,
                &mut invstd,
            )?;
            keep.get_or_init(|| [mean, invstd]);
            Ok(())
        },
        move |b| {
            let [x, gamma, _] = b.inputs;
            let (mean, invstd) = kept(&statistics);
            gradients(b, |dx, dgamma, dbeta| {
                norm::group_norm_backward(
                    &shape, groups, x, b.grad, gamma, mean, invstd, dx, dgamma, dbeta,
                )
            })
        },
    )
    .apply([xs, weight, bias])
}
