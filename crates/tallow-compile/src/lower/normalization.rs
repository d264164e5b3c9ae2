//! Normalisation. Images lie channels last, so that a channel is a column of a matrix `[N·H·W, C]`.

use tallow_graph::op::{
    BatchNorm, Clamp as GraphClamp, FoldBatchNorm, Grad, GroupNorm, LayerNorm, Normalize,
    NormalizeBackward, NormalizeSums, RunningStat, Statistic,
};
use tallow_kernels::channels_last::norm::{self, Affine, Clamp, Mask, Residual, Statistics, Sums};
use tallow_kernels::{ChannelShape, norm as plain};

use tallow_tensor::sync;

use super::{Fault, Io, Lowered, Outcome, Site};
use crate::Result;

/// The activation as the kernels name it.
pub(super) fn clamp(activation: Option<GraphClamp>) -> Clamp {
    match activation {
        None => Clamp::None,
        Some(GraphClamp::Relu) => Clamp::Relu,
        Some(GraphClamp::Relu6) => Clamp::Relu6,
    }
}

/// The channels of a matrix `[N, C]` or of images channels last.
fn channels(site: &Site<'_>, input: usize) -> Result<usize> {
    match *site.shape(input) {
        [_, channels] | [_, channels, _, _] => Ok(channels),
        _ => Err(site.unsupported(
            "works on [N, C] and [N, C, H, W] in compiled plans",
            "reshape its input to one of these",
        )),
    }
}

/// Statistics that lie one after the other, `[2, C]`.
fn statistics(values: &[f32], eps: f64) -> Statistics<'_> {
    let (mean, var) = values.split_at(values.len() / 2);
    Statistics { mean, var, eps }
}

pub(super) fn batch_norm(site: &Site<'_>, op: &BatchNorm) -> Result<Lowered> {
    let channels = channels(site, 0)?;
    if op.train {
        return Err(site.unsupported(
            "takes its statistics from the batch",
            "compile the model for inference, or a whole training step",
        ));
    }
    let eps = op.eps;
    let lowered = Lowered::new(move |io| {
        let [weight, bias, mean, var] = [1, 2, 3, 4].map(|input| io.floats(input));
        let mut folded = io.workspace.take(2 * channels);
        let (scale, shift) = folded.split_at_mut(channels);
        let statistics = Statistics { mean, var, eps };
        norm::fold(statistics, Some(weight), Some(bias), scale, shift)?;
        apply(
            io,
            channels,
            Affine { scale, shift },
            Residual::None,
            Clamp::None,
        )
    });
    Ok(lowered.in_place(&[0]))
}

fn apply(
    io: &mut Io<'_>,
    channels: usize,
    affine: Affine<'_>,
    residual: Residual<'_>,
    activation: Clamp,
) -> Outcome {
    match io.taken {
        Some(_) => norm::normalize_in_place(channels, affine, residual, activation, io.out),
        None => norm::normalize(channels, io.floats(0), affine, residual, activation, io.out),
    }
}

pub(super) fn batch_stats(site: &Site<'_>) -> Result<Lowered> {
    let channels = channels(site, 0)?;
    Ok(Lowered::joint(move |io| {
        let x = io.floats(0);
        let (mean, var) = io.out.split_at_mut(channels);
        norm::batch_stats(channels, x, mean, var, io.workspace)?;
        match sync::current() {
            Some(joint) => Ok(joint.statistics(x.len() / channels, mean, var)?),
            None => Ok(()),
        }
    }))
}

pub(super) fn normalize(site: &Site<'_>, op: &Normalize) -> Result<Lowered> {
    let channels = channels(site, 0)?;
    let (eps, residual, activation) = (op.eps, op.residual, clamp(op.activation));
    let lowered = Lowered::new(move |io| {
        let mut folded = io.workspace.take(2 * channels);
        let (scale, shift) = folded.split_at_mut(channels);
        let statistics = statistics(io.floats(1), eps);
        norm::fold(
            statistics,
            Some(io.floats(2)),
            Some(io.floats(3)),
            scale,
            shift,
        )?;
        let residual = match residual {
            true => Residual::Plain(io.floats(4)),
            false => Residual::None,
        };
        apply(io, channels, Affine { scale, shift }, residual, activation)
    });
    Ok(lowered.in_place(&[0]))
}

/// What the activation lets through, seen in its output.
fn mask<'a>(io: &Io<'a>, input: usize, activation: Clamp) -> Mask<'a> {
    match activation {
        Clamp::None => Mask::None,
        activation => activation.mask(io.floats(input)),
    }
}

pub(super) fn sums(site: &Site<'_>, op: &NormalizeSums) -> Result<Lowered> {
    let channels = channels(site, 1)?;
    let (eps, activation) = (op.eps, clamp(op.activation));
    Ok(Lowered::new(move |io| {
        let mask = mask(io, 3, activation);
        let statistics = statistics(io.floats(2), eps);
        let (dy, x) = (io.floats(0), io.floats(1));
        let (sum_g, sum_gx) = io.out.split_at_mut(channels);
        norm::backward_sums(
            channels,
            dy,
            mask,
            x,
            statistics,
            sum_g,
            sum_gx,
            io.workspace,
        )
    }))
}

pub(super) fn backward(site: &Site<'_>, op: &NormalizeBackward) -> Result<Lowered> {
    let channels = channels(site, 1)?;
    let (eps, activation) = (op.eps, clamp(op.activation));
    let lowered = match op.batch {
        true => Lowered::joint(move |io| backward_batch(io, channels, eps, activation)),
        false => Lowered::new(move |io| backward_fixed(io, channels, eps, activation)),
    };
    Ok(lowered.in_place(&[0]))
}

/// The gradient through the statistics of the batch.
fn backward_batch(
    io: &mut Io<'_>,
    channels: usize,
    eps: f64,
    activation: Clamp,
) -> std::result::Result<(), Fault> {
    let mask = mask(io, 5, activation);
    let (x, weight) = (io.floats(1), Some(io.floats(3)));
    let statistics = statistics(io.floats(2), eps);
    let mut joint_sums = io.workspace.take(2 * channels);
    let mut sums = io.floats(4);
    if let Some(joint) = sync::current() {
        joint_sums.copy_from_slice(sums);
        joint.gradient_sums(x.len() / channels, &mut joint_sums)?;
        sums = &joint_sums;
    }
    let (g, g_xhat) = sums.split_at(channels);
    let sums = Sums { g, g_xhat };
    if io.taken.is_some() {
        norm::backward_input_in_place(
            channels,
            mask,
            x,
            statistics,
            weight,
            sums,
            None,
            io.out,
            None,
            io.workspace,
        )?;
        return Ok(());
    }
    let dy = io.floats(0);
    norm::backward_input(
        channels,
        dy,
        mask,
        x,
        statistics,
        weight,
        sums,
        None,
        io.out,
        None,
        io.workspace,
    )?;
    Ok(())
}

/// The gradient where the statistics are fixed: a factor a channel.
fn backward_fixed(io: &mut Io<'_>, channels: usize, eps: f64, activation: Clamp) -> Outcome {
    let mask = mask(io, 5, activation);
    let mut folded = io.workspace.take(2 * channels);
    let (scale, shift) = folded.split_at_mut(channels);
    norm::fold(
        statistics(io.floats(2), eps),
        Some(io.floats(3)),
        None,
        scale,
        shift,
    )?;
    if io.taken.is_some() {
        return norm::backward_frozen_in_place(channels, mask, scale, None, io.out, None);
    }
    norm::backward_frozen(channels, io.floats(0), mask, scale, None, io.out, None)
}

pub(super) fn running(op: &RunningStat) -> Lowered {
    let (statistic, momentum) = (op.statistic, op.momentum);
    // The running variance follows the unbiased one.
    let count = op.count;
    Lowered::new(move |io| {
        let total = sync::current().map_or(count as f64, |joint| joint.total(count));
        let unbiased = total / (total.max(2.0) - 1.0);
        let (running, stats) = (io.floats(0), io.floats(1));
        let (mean, var) = stats.split_at(stats.len() / 2);
        let (batch, factor) = match statistic {
            Statistic::Mean => (mean, 1.0),
            Statistic::Variance => (var, unbiased),
        };
        for ((next, &running), &batch) in io.out.iter_mut().zip(running).zip(batch) {
            let moved = f64::from(batch) * factor;
            *next = ((1.0 - momentum) * f64::from(running) + momentum * moved) as f32;
        }
        Ok(())
    })
}

pub(super) fn fold(op: &FoldBatchNorm) -> Lowered {
    let eps = op.eps;
    Lowered::new(move |io| {
        let [weight, bias, mean, var] = [0, 1, 2, 3].map(|input| io.floats(input));
        let statistics = Statistics { mean, var, eps };
        let channels = weight.len();
        let (scale, shift) = io.out.split_at_mut(channels);
        norm::fold(statistics, Some(weight), Some(bias), scale, shift)
    })
}

/// Rows and columns of a layer norm of `x` with a weight of `width` elements.
fn rows(elements: u64, width: u64) -> [usize; 2] {
    [(elements / width.max(1)) as usize, width as usize]
}

pub(super) fn layer_norm(site: &Site<'_>, op: &LayerNorm) -> Lowered {
    let shape = rows(site.output().elements(), site.inputs[1].elements());
    let eps = op.eps;
    Lowered::new(move |io| {
        let (mut mean, mut invstd) = (io.workspace.take(shape[0]), io.workspace.take(shape[0]));
        let [x, weight, bias] = [0, 1, 2].map(|input| io.floats(input));
        plain::layer_norm(shape, x, weight, bias, eps, io.out, &mut mean, &mut invstd)
    })
}

/// With respect to x from dy, x and weight, or to the weight from dy and x.
pub(super) fn layer_norm_backward(
    _site: &Site<'_>,
    op: &LayerNorm,
    grad: &Grad,
    wrt: usize,
) -> Lowered {
    let shape = rows(grad.inputs[0].elements(), grad.inputs[1].elements());
    let eps = op.eps;
    Lowered::new(move |io| {
        let [count, width] = shape;
        let ws = io.workspace;
        let (mut mean, mut invstd) = (ws.take(count), ws.take(count));
        let (mut spare, mut other) = (ws.take(width), ws.take(width));
        let (dy, x) = (io.floats(0), io.floats(1));
        let mut weight = ws.take(width);
        match wrt {
            0 => weight.copy_from_slice(io.floats(2)),
            _ => weight.fill(1.0),
        }
        let mut rest = ws.take(count * width);
        // The forward pass again, for its statistics; what it gives is overwritten.
        plain::layer_norm(
            shape,
            x,
            &weight,
            &weight,
            eps,
            &mut rest,
            &mut mean,
            &mut invstd,
        )?;
        let (dx, dweight) = match wrt {
            0 => (&mut *io.out, &mut *spare),
            _ => (&mut *rest, &mut *io.out),
        };
        plain::layer_norm_backward(
            shape, x, dy, &weight, &mean, &invstd, dx, dweight, &mut other,
        )
    })
}

fn channel_shape(shape: &[usize]) -> ChannelShape {
    let at = |axis: usize| shape.get(axis).copied().unwrap_or(1);
    ChannelShape::new(at(0), at(1), shape.iter().skip(2).product())
}

pub(super) fn group_norm(site: &Site<'_>, op: &GroupNorm) -> Lowered {
    let shape = channel_shape(site.shape(0));
    let (groups, eps) = (op.groups, op.eps);
    Lowered::new(move |io| {
        let count = shape.batch * groups;
        let (mut mean, mut invstd) = (io.workspace.take(count), io.workspace.take(count));
        let [x, weight, bias] = [0, 1, 2].map(|input| io.floats(input));
        plain::group_norm(
            &shape,
            groups,
            x,
            weight,
            bias,
            eps,
            io.out,
            &mut mean,
            &mut invstd,
        )
    })
}

/// With respect to x from dy, x and weight, or to the weight from dy and x.
pub(super) fn group_norm_backward(
    _site: &Site<'_>,
    op: &GroupNorm,
    grad: &Grad,
    wrt: usize,
) -> Lowered {
    let shape = channel_shape(&grad.inputs[0].shape);
    let elements = grad.inputs[0].elements() as usize;
    let (groups, eps) = (op.groups, op.eps);
    Lowered::new(move |io| {
        let count = shape.batch * groups;
        let ws = io.workspace;
        let (mut mean, mut invstd) = (ws.take(count), ws.take(count));
        let (mut spare, mut other) = (ws.take(shape.channels), ws.take(shape.channels));
        let (dy, x) = (io.floats(0), io.floats(1));
        let mut weight = ws.take(shape.channels);
        match wrt {
            0 => weight.copy_from_slice(io.floats(2)),
            _ => weight.fill(1.0),
        }
        let mut rest = ws.take(elements);
        plain::group_norm(
            &shape,
            groups,
            x,
            &weight,
            &weight,
            eps,
            &mut rest,
            &mut mean,
            &mut invstd,
        )?;
        let (dx, dweight) = match wrt {
            0 => (&mut *io.out, &mut *spare),
            _ => (&mut *rest, &mut *io.out),
        };
        plain::group_norm_backward(
            &shape, groups, x, dy, &weight, &mean, &invstd, dx, dweight, &mut other,
        )
    })
}
