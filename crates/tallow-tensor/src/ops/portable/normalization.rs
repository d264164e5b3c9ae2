//! Batch, layer and group normalisation written out.

use candle_core::{Result, Tensor};

/// Normalises by the running statistics, which get no gradient.
pub(crate) fn batch_norm_eval(
    [xs, weight, bias, mean, var]: [&Tensor; 5],
    eps: f64,
) -> Result<Tensor> {
    let mean = along_channels(&mean.detach(), xs.rank())?;
    let var = along_channels(&var.detach(), xs.rank())?;
    scale_channels(&standardize(xs, &mean, &var, eps)?, weight, bias)
}

/// Normalises by the statistics of the batch. Also gives those: the mean and the unbiased variance, `[C]` each.
pub(crate) fn batch_norm_train(
    [xs, weight, bias]: [&Tensor; 3],
    eps: f64,
) -> Result<(Tensor, [Tensor; 2])> {
    let all_but_channels: Vec<usize> = (0..xs.rank()).filter(|&dim| dim != 1).collect();
    let (mean, var) = moments(xs, &all_but_channels)?;
    let ys = scale_channels(&standardize(xs, &mean, &var, eps)?, weight, bias)?;
    let count = xs.elem_count() as f64 / mean.elem_count().max(1) as f64;
    let unbiased = (var.detach() * (count / (count - 1.)))?;
    Ok((ys, [mean.detach().flatten_all()?, unbiased.flatten_all()?]))
}

/// Mean and biased variance of `xs` over `dims`, both with the dimensions kept.
fn moments(xs: &Tensor, dims: &[usize]) -> Result<(Tensor, Tensor)> {
    let mean = xs.mean_keepdim(dims)?;
    let var = xs.broadcast_sub(&mean)?.sqr()?.mean_keepdim(dims)?;
    Ok((mean, var))
}

/// `(xs - mean) / sqrt(var + eps)`.
fn standardize(xs: &Tensor, mean: &Tensor, var: &Tensor, eps: f64) -> Result<Tensor> {
    xs.broadcast_sub(mean)?.broadcast_div(&(var + eps)?.sqrt()?)
}

/// `xs * weight + bias` with `weight` and `bias` `[C]` along dimension 1.
fn scale_channels(xs: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    xs.broadcast_mul(&along_channels(weight, xs.rank())?)?
        .broadcast_add(&along_channels(bias, xs.rank())?)
}

/// `[C]` as `[1, C, 1, ..]` of the given rank.
fn along_channels(values: &Tensor, rank: usize) -> Result<Tensor> {
    let mut shape = vec![1; rank];
    shape[1] = values.elem_count();
    values.reshape(shape)
}

/// Normalises over the trailing dimensions that `weight` has.
pub(crate) fn layer_norm(xs: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let dims: Vec<usize> = (xs.rank() - weight.rank()..xs.rank()).collect();
    let (mean, var) = moments(xs, &dims)?;
    standardize(xs, &mean, &var, eps)?
        .broadcast_mul(weight)?
        .broadcast_add(bias)
}

/// Normalises over groups of channels and all positions of one sample.
pub(crate) fn group_norm(
    xs: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    groups: usize,
    eps: f64,
) -> Result<Tensor> {
    let samples = xs.dims()[0];
    let rest = xs.elem_count() / (samples * groups).max(1);
    let grouped = xs.reshape((samples, groups, rest))?;
    let (mean, var) = moments(&grouped, &[2])?;
    let normed = standardize(&grouped, &mean, &var, eps)?.reshape(xs.shape())?;
    scale_channels(&normed, weight, bias)
}
