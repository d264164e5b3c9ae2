//! Normalisation: batch, layer, group.

use super::dispatch::{check, invalid, run};
use super::kernel;
use super::portable::normalization as portable;
use crate::params::is_frozen;
use crate::{inplace, record, sync};
use candle_core::{Result, Tensor, Var};
use tallow_graph::{
    Op,
    op::{BatchNorm, GroupNorm, LayerNorm},
};
use tallow_kernels::norm;

/// What [`batch_norm`] reads besides its input; tensors are `[C]`.
#[derive(Debug, Clone, Copy)]
pub struct BatchNormArgs<'a> {
    /// Factor a channel.
    pub weight: &'a Tensor,
    /// Offset a channel.
    pub bias: &'a Tensor,
    /// Running mean; a variable, if it is to be trained with.
    pub running_mean: &'a Tensor,
    /// Running variance (unbiased); a variable, if it is to be trained with.
    pub running_var: &'a Tensor,
    /// Added to the variance before the root; PyTorch's usual is 1e-5.
    pub eps: f64,
    /// The weight of a new batch in the running statistics; PyTorch's usual is 0.1.
    pub momentum: f64,
}

/// Batch normalisation of `xs` `[N, C, ..]` (Ioffe and Szegedy, 2015); PyTorch's `batch_norm`.
///
/// With `train`, statistics come from the batch, normalising with the biased variance, and the running statistics
/// move towards them by `momentum`, with the unbiased variance; that change is not part of the tape. Without it, and where
/// the running statistics are [frozen](crate::Params::freeze_batch_norm), statistics are the running ones and nothing
/// changes. Between [`sync::enter`] and its guard's end, the batch is that of all ranks.
///
/// # Errors
/// Where shapes don't fit, where a training batch has one value a channel, where the running statistics are to
/// be updated but aren't variables, or where another rank can't be reached.
pub fn batch_norm(xs: &Tensor, args: &BatchNormArgs<'_>, train: bool) -> Result<Tensor> {
    let train = train && !is_frozen(args.running_mean);
    let op = Op::BatchNorm(BatchNorm {
        eps: args.eps,
        momentum: args.momentum,
        train,
    });
    let inputs = [
        xs,
        args.weight,
        args.bias,
        args.running_mean,
        args.running_var,
    ];
    check(&op, &inputs)?;
    // A capture leaves the model as it was.
    let update = train && !record::is_active();
    if update && inputs[3..].iter().any(|running| !running.is_variable()) {
        return Err(invalid(
            &op,
            &inputs,
            "the running statistics are to be updated, but are not variables",
            "create them with `params::buffer` or as `Var`s, or call with train = false",
        ));
    }
    let joint = sync::current().filter(|_| update);
    let move_running = |[mean, var]: [Tensor; 2]| -> Result<()> {
        if update {
            follow(args.running_mean, &mean, args.momentum)?;
            follow(args.running_var, &var, args.momentum)?;
        }
        Ok(())
    };
    let kernels = |[xs, weight, bias, mean, var]: &[Tensor; 5], out: &[usize]| {
        if !train {
            return kernel::batch_norm_eval([xs, weight, bias, mean, var], args.eps, out);
        }
        let inputs = [xs, weight, bias];
        let (ys, statistics) = match joint.clone() {
            None => kernel::batch_norm_train(inputs, args.eps, out)?,
            Some(joint) => kernel::joint_batch_norm_train(inputs, args.eps, out, joint)?,
        };
        move_running(statistics)?;
        Ok(ys)
    };
    let of_ranks = op.clone();
    run(op, inputs, kernels, || {
        if !train {
            return portable::batch_norm_eval(inputs, args.eps);
        }
        if joint.is_some() {
            return Err(invalid(
                &of_ranks,
                &inputs,
                "statistics over several ranks are computed in f32 on the CPU alone",
                "train in f32, bf16 or f16 on the CPU, or without synchronised batch norm",
            ));
        }
        let (ys, statistics) = portable::batch_norm_train([xs, args.weight, args.bias], args.eps)?;
        move_running(statistics)?;
        Ok(ys)
    })
}

/// Moves `running` towards `batch` by `momentum`, in place.
fn follow(running: &Tensor, batch: &Tensor, momentum: f64) -> Result<()> {
    if inplace::is_supported(running) {
        return inplace::zip2(running, batch, |running, batch| {
            norm::update_running(momentum, batch, running).map_err(candle_core::Error::wrap)
        });
    }
    let batch = batch.to_dtype(running.dtype())?;
    let next = ((running.detach() * (1. - momentum))? + (batch * momentum)?)?;
    Var::from_tensor(running)?.set(&next)
}

/// Layer normalisation over the trailing dimensions that `weight` and `bias` have (Ba et al., 2016); PyTorch's
/// `layer_norm`. `xs` `[.., D]` with `weight` `[D]` is the usual case.
///
/// # Errors
/// Where the shape of `xs` doesn't end with that of `weight`.
pub fn layer_norm(xs: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let op = Op::LayerNorm(LayerNorm { eps });
    run(
        op,
        [xs, weight, bias],
        |[xs, weight, bias], out| kernel::layer_norm(xs, weight, bias, eps, out),
        || portable::layer_norm(xs, weight, bias, eps),
    )
}

/// Group normalisation of `xs` `[N, C, ..]`: mean and variance over each of `groups` groups of channels and all
/// positions of a sample (Wu and He, 2018); PyTorch's `group_norm`. `weight` and `bias` are `[C]`.
///
/// # Errors
/// Where `groups` doesn't divide the channels.
pub fn group_norm(
    xs: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    groups: usize,
    eps: f64,
) -> Result<Tensor> {
    let op = Op::GroupNorm(GroupNorm { groups, eps });
    run(
        op,
        [xs, weight, bias],
        |[xs, weight, bias], out| kernel::group_norm(xs, weight, bias, groups, eps, out),
        || portable::group_norm(xs, weight, bias, groups, eps),
    )
}
