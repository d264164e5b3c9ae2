//! Batch norm (Ioffe and Szegedy 2015), PyTorch's `batch_norm`.
//!
//! `y = (x - mean) / sqrt(var + eps) * gamma + beta` with mean and biased variance of a channel,
//! over `N` and `S`; running statistics take the unbiased variance.

use super::{check_eps, mean_and_variance};
use crate::channels::{Plane, PlaneSums, for_each_block};
use crate::error::{Error, Result, check_len};
use crate::lanes::for_lanes;
use crate::parallel::{Rows, for_each, grain, rows};
use crate::shape::ChannelShape;
use crate::simd::{Isa, dispatch};

/// Batch norm in training: normalises `x` of `[N, C, S]` by its own statistics.
///
/// Writes `y`, and of `[C]` each `save_mean`, `save_invstd` = `1 / sqrt(var + eps)` with the biased
/// variance, both for [`batch_norm_backward`], and `batch_var_unbiased` for [`update_running`].
///
/// # Errors
/// [`Error::Length`] for a slice of another length; [`Error::Geometry`] where a channel has fewer
/// than two elements, which have no variance; [`Error::Parameter`] for a negative `eps`.
pub fn batch_norm_train(
    shape: &ChannelShape,
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    eps: f64,
    y: &mut [f32],
    save_mean: &mut [f32],
    save_invstd: &mut [f32],
    batch_var_unbiased: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "batch_norm_train";
    check_tensors(KERNEL, shape, &[("x", x), ("y", y)])?;
    check_channels(
        KERNEL,
        shape,
        &[
            ("gamma", gamma),
            ("beta", beta),
            ("save_mean", save_mean),
            ("save_invstd", save_invstd),
            ("batch_var_unbiased", batch_var_unbiased),
        ],
    )?;
    check_eps(KERNEL, eps)?;
    let count = shape.batch * shape.spatial;
    if count < 2 {
        return Err(Error::Geometry {
            kernel: KERNEL,
            problem: format!(
                "{} sample(s) of {} element(s) a channel have no variance; train with at least \
                 two elements a channel, or normalise with running statistics",
                shape.batch, shape.spatial
            ),
        });
    }
    let count = count as f64;
    let outputs = (&mut *save_mean, &mut *save_invstd, batch_var_unbiased);
    for_each_block(
        shape,
        outputs,
        &Moments { x },
        |sums, (mean, invstd, unbiased)| {
            for (channel, &sums) in sums.iter().enumerate() {
                let (channel_mean, variance) = mean_and_variance(sums, count);
                mean[channel] = channel_mean as f32;
                invstd[channel] = (1.0 / (variance + eps).sqrt()) as f32;
                unbiased[channel] = (variance * (count / (count - 1.0))) as f32;
            }
        },
    );
    normalise(shape, x, y, |channel| {
        (
            save_mean[channel],
            save_invstd[channel] * gamma[channel],
            beta[channel],
        )
    });
    Ok(())
}

/// Batch norm in evaluation: normalises `x` of `[N, C, S]` by running statistics of `[C]`.
///
/// # Errors
/// [`Error::Length`] for a slice of another length; [`Error::Parameter`] for a negative `eps`.
pub fn batch_norm_eval(
    shape: &ChannelShape,
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    running_mean: &[f32],
    running_var: &[f32],
    eps: f64,
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "batch_norm_eval";
    check_tensors(KERNEL, shape, &[("x", x), ("y", y)])?;
    check_channels(
        KERNEL,
        shape,
        &[
            ("gamma", gamma),
            ("beta", beta),
            ("running_mean", running_mean),
            ("running_var", running_var),
        ],
    )?;
    check_eps(KERNEL, eps)?;
    normalise(shape, x, y, |channel| {
        let invstd = inverse_std(running_var[channel], eps);
        (
            running_mean[channel],
            invstd * gamma[channel],
            beta[channel],
        )
    });
    Ok(())
}

/// `running = (1 - momentum) running + momentum batch`, for means and unbiased variances.
///
/// # Errors
/// [`Error::Length`] unless both slices have one length.
pub fn update_running(momentum: f64, batch: &[f32], running: &mut [f32]) -> Result<()> {
    check_len("update_running", "running", running, batch.len())?;
    let (kept, taken) = ((1.0 - momentum) as f32, momentum as f32);
    for (running, &batch) in running.iter_mut().zip(batch) {
        *running = kept * *running + taken * batch;
    }
    Ok(())
}

/// Gradients of [`batch_norm_train`], from its input `x`, the statistics it saved, and `dy`.
///
/// Writes `dx` of `[N, C, S]`, `dgamma` and `dbeta` of `[C]`:
/// `dbeta = sum(dy)`, `dgamma = sum(dy xhat)`,
/// `dx = gamma invstd (dy - dbeta / m - xhat dgamma / m)` with `m = N S`.
///
/// # Errors
/// [`Error::Length`] for a slice of another length.
pub fn batch_norm_backward(
    shape: &ChannelShape,
    x: &[f32],
    dy: &[f32],
    gamma: &[f32],
    save_mean: &[f32],
    save_invstd: &[f32],
    dx: &mut [f32],
    dgamma: &mut [f32],
    dbeta: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "batch_norm_backward";
    check_tensors(KERNEL, shape, &[("x", x), ("dy", dy), ("dx", dx)])?;
    check_channels(
        KERNEL,
        shape,
        &[
            ("gamma", gamma),
            ("save_mean", save_mean),
            ("save_invstd", save_invstd),
            ("dgamma", dgamma),
            ("dbeta", dbeta),
        ],
    )?;
    batch_norm_gradient_sums(shape, x, dy, save_mean, save_invstd, dgamma, dbeta)?;
    let statistics = [save_mean, save_invstd];
    batch_norm_input_gradient(shape, x, dy, gamma, statistics, [dgamma, dbeta], dx)
}

/// Gradients of [`batch_norm_eval`], in which the statistics are constants:
/// `dx = dy gamma / sqrt(running_var + eps)`; `dgamma` and `dbeta` as in [`batch_norm_backward`].
///
/// # Errors
/// [`Error::Length`] for a slice of another length; [`Error::Parameter`] for a negative `eps`.
pub fn batch_norm_backward_eval(
    shape: &ChannelShape,
    x: &[f32],
    dy: &[f32],
    gamma: &[f32],
    running_mean: &[f32],
    running_var: &[f32],
    eps: f64,
    dx: &mut [f32],
    dgamma: &mut [f32],
    dbeta: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "batch_norm_backward_eval";
    check_tensors(KERNEL, shape, &[("x", x), ("dy", dy), ("dx", dx)])?;
    check_channels(
        KERNEL,
        shape,
        &[
            ("gamma", gamma),
            ("running_mean", running_mean),
            ("running_var", running_var),
            ("dgamma", dgamma),
            ("dbeta", dbeta),
        ],
    )?;
    check_eps(KERNEL, eps)?;
    let invstd = |channel: usize| inverse_std(running_var[channel], eps);
    parameter_gradients(shape, x, dy, running_mean, invstd, dgamma, dbeta);
    normalise(shape, dy, dx, |channel| {
        (0.0, gamma[channel] * invstd(channel), 0.0)
    });
    Ok(())
}

/// The sums from which the statistics of [`batch_norm_train`] come, of each channel of `x` of `[N, C, S]`: writes `sum(x)` and
/// `sum(x * x)`, `[C]` each. For batches that lie in several places, whose sums are added up.
///
/// # Errors
/// [`Error::Length`] for a slice of another length.
pub fn batch_norm_sums(
    shape: &ChannelShape,
    x: &[f32],
    sum: &mut [f64],
    squares: &mut [f64],
) -> Result<()> {
    const KERNEL: &str = "batch_norm_sums";
    check_tensors(KERNEL, shape, &[("x", x)])?;
    check_len(KERNEL, "sum", sum, shape.channels)?;
    check_len(KERNEL, "squares", squares, shape.channels)?;
    for_each_block(
        shape,
        (sum, squares),
        &Moments { x },
        |sums, (sum, squares)| {
            for (channel, &[one, two]) in sums.iter().enumerate() {
                (sum[channel], squares[channel]) = (one, two);
            }
        },
    );
    Ok(())
}

/// The statistics that [`batch_norm_train`] saves, from [`batch_norm_sums`] over `count` elements a channel.
///
/// # Errors
/// [`Error::Length`] unless all slices have one length; [`Error::Geometry`] for fewer than two elements, which have no
/// variance; [`Error::Parameter`] for a negative `eps`.
pub fn batch_norm_statistics(
    count: f64,
    [sum, squares]: [&[f64]; 2],
    eps: f64,
    save_mean: &mut [f32],
    save_invstd: &mut [f32],
    batch_var_unbiased: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "batch_norm_statistics";
    let channels = sum.len();
    check_len(KERNEL, "squares", squares, channels)?;
    check_len(KERNEL, "save_mean", save_mean, channels)?;
    check_len(KERNEL, "save_invstd", save_invstd, channels)?;
    check_len(KERNEL, "batch_var_unbiased", batch_var_unbiased, channels)?;
    check_eps(KERNEL, eps)?;
    if count < 2.0 {
        let problem =
            format!("{count} element(s) a channel have no variance; train with at least two");
        return Err(Error::Geometry {
            kernel: KERNEL,
            problem,
        });
    }
    for channel in 0..channels {
        let (mean, variance) = mean_and_variance([sum[channel], squares[channel]], count);
        save_mean[channel] = mean as f32;
        save_invstd[channel] = (1.0 / (variance + eps).sqrt()) as f32;
        batch_var_unbiased[channel] = (variance * (count / (count - 1.0))) as f32;
    }
    Ok(())
}

/// Normalises `x` of `[N, C, S]` by statistics that are known: the last part of [`batch_norm_train`].
///
/// # Errors
/// [`Error::Length`] for a slice of another length.
pub fn batch_norm_apply(
    shape: &ChannelShape,
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    mean: &[f32],
    invstd: &[f32],
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "batch_norm_apply";
    check_tensors(KERNEL, shape, &[("x", x), ("y", y)])?;
    let vectors = [
        ("gamma", gamma),
        ("beta", beta),
        ("mean", mean),
        ("invstd", invstd),
    ];
    check_channels(KERNEL, shape, &vectors)?;
    normalise(shape, x, y, |channel| {
        (
            mean[channel],
            invstd[channel] * gamma[channel],
            beta[channel],
        )
    });
    Ok(())
}

/// The gradients of weight and bias in [`batch_norm_backward`], `dgamma` and `dbeta`, `[C]` each.
///
/// # Errors
/// [`Error::Length`] for a slice of another length.
pub fn batch_norm_gradient_sums(
    shape: &ChannelShape,
    x: &[f32],
    dy: &[f32],
    save_mean: &[f32],
    save_invstd: &[f32],
    dgamma: &mut [f32],
    dbeta: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "batch_norm_gradient_sums";
    check_tensors(KERNEL, shape, &[("x", x), ("dy", dy)])?;
    let vectors = [
        ("save_mean", save_mean),
        ("save_invstd", save_invstd),
        ("dgamma", &*dgamma),
        ("dbeta", &*dbeta),
    ];
    check_channels(KERNEL, shape, &vectors)?;
    parameter_gradients(shape, x, dy, save_mean, |c| save_invstd[c], dgamma, dbeta);
    Ok(())
}

/// The gradient of the input in [`batch_norm_backward`], `dx`, from the other two of the whole batch. Where `x` is a part of it,
/// they are scaled to the size of that part: by its elements over those of the batch.
///
/// # Errors
/// [`Error::Length`] for a slice of another length.
pub fn batch_norm_input_gradient(
    shape: &ChannelShape,
    x: &[f32],
    dy: &[f32],
    gamma: &[f32],
    [save_mean, save_invstd]: [&[f32]; 2],
    [dgamma, dbeta]: [&[f32]; 2],
    dx: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "batch_norm_input_gradient";
    check_tensors(KERNEL, shape, &[("x", x), ("dy", dy), ("dx", dx)])?;
    let vectors = [
        ("gamma", gamma),
        ("save_mean", save_mean),
        ("save_invstd", save_invstd),
        ("dgamma", dgamma),
        ("dbeta", dbeta),
    ];
    check_channels(KERNEL, shape, &vectors)?;
    let per_element = 1.0 / (shape.batch * shape.spatial) as f32;
    input_gradient(shape, x, dy, dx, |channel| {
        let invstd = save_invstd[channel];
        Slopes {
            mean: save_mean[channel],
            of_dy: gamma[channel] * invstd,
            of_x: invstd * dgamma[channel] * per_element,
            constant: dbeta[channel] * per_element,
        }
    });
    Ok(())
}

fn inverse_std(variance: f32, eps: f64) -> f32 {
    (1.0 / (f64::from(variance) + eps).sqrt()) as f32
}

fn check_tensors(
    kernel: &'static str,
    shape: &ChannelShape,
    tensors: &[(&'static str, &[f32])],
) -> Result<()> {
    let len = shape.len(kernel)?;
    tensors
        .iter()
        .try_for_each(|(operand, slice)| check_len(kernel, operand, slice, len))
}

fn check_channels(
    kernel: &'static str,
    shape: &ChannelShape,
    vectors: &[(&'static str, &[f32])],
) -> Result<()> {
    let check = |(operand, slice): &(&'static str, &[f32])| {
        check_len(kernel, operand, slice, shape.channels)
    };
    vectors.iter().try_for_each(check)
}

/// `sum(x)` and `sum(x * x)`.
struct Moments<'a> {
    x: &'a [f32],
}

impl PlaneSums for Moments<'_> {
    #[inline(always)]
    fn add_plane<I: Isa>(&self, plane: Plane, sums: &mut [I::Sums; 2]) {
        let [mut sum, mut squares] = *sums;
        for_lanes!(I, x in self.x[plane.range()] => {
            sum = I::accumulate(sum, x);
            squares = I::accumulate_product(squares, x, x);
        });
        *sums = [sum, squares];
    }
}

/// `sum(dy)` and `sum(dy (x - mean))`.
struct GradientSums<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    mean: &'a [f32],
}

impl PlaneSums for GradientSums<'_> {
    #[inline(always)]
    fn add_plane<I: Isa>(&self, plane: Plane, sums: &mut [I::Sums; 2]) {
        let [mut sum, mut products] = *sums;
        let mean = I::splat(self.mean[plane.channel]);
        for_lanes!(I, (x, dy) in (self.x[plane.range()], self.dy[plane.range()]) => {
            sum = I::accumulate(sum, dy);
            products = I::accumulate(products, I::mul(dy, I::sub(x, mean)));
        });
        *sums = [sum, products];
    }
}

fn parameter_gradients(
    shape: &ChannelShape,
    x: &[f32],
    dy: &[f32],
    mean: &[f32],
    invstd: impl Fn(usize) -> f32 + Sync,
    dgamma: &mut [f32],
    dbeta: &mut [f32],
) {
    let channels = 0..shape.channels;
    let outputs = (channels, dgamma, dbeta);
    for_each_block(
        shape,
        outputs,
        &GradientSums { x, dy, mean },
        |sums, outputs| {
            let (channels, dgamma, dbeta) = outputs;
            for ((channel, [sum, products]), (dgamma, dbeta)) in
                channels.zip(sums).zip(dgamma.iter_mut().zip(dbeta))
            {
                *dbeta = *sum as f32;
                *dgamma = (products * f64::from(invstd(channel))) as f32;
            }
        },
    );
}

/// `y = (x - mean) scale + shift`, where `coefficients(channel)` gives these three.
fn normalise<F>(shape: &ChannelShape, x: &[f32], y: &mut [f32], coefficients: F)
where
    F: Fn(usize) -> (f32, f32, f32) + Sync,
{
    let spatial = shape.spatial;
    if spatial == 0 {
        return;
    }
    let data = (rows(x, spatial), rows(y, spatial));
    for_each(
        shape.batch * shape.channels,
        grain(spatial),
        data,
        |first, (x, y)| {
            normalise_leaf(first, shape.channels, x, y, &coefficients);
        },
    );
}

dispatch! {
    fn normalise_leaf<I, F: Fn(usize) -> (f32, f32, f32)>(
        first: usize, channels: usize, x: Rows<&[f32]>, y: Rows<&mut [f32]>, coefficients: &F
    ) {
        let planes = x.data.chunks_exact(x.width).zip(y.data.chunks_exact_mut(y.width));
        for (plane, (x, y)) in planes.enumerate() {
            let (mean, scale, shift) = coefficients((first + plane) % channels);
            for (y, &x) in y.iter_mut().zip(x) {
                *y = I::fma(x - mean, scale, shift);
            }
        }
    }
}

/// `dx = of_dy (dy - constant - of_x (x - mean))`.
#[derive(Clone, Copy)]
struct Slopes {
    mean: f32,
    of_dy: f32,
    of_x: f32,
    constant: f32,
}

fn input_gradient<F>(shape: &ChannelShape, x: &[f32], dy: &[f32], dx: &mut [f32], slopes: F)
where
    F: Fn(usize) -> Slopes + Sync,
{
    let spatial = shape.spatial;
    if spatial == 0 {
        return;
    }
    let data = (rows(x, spatial), rows(dy, spatial), rows(dx, spatial));
    for_each(
        shape.batch * shape.channels,
        grain(spatial),
        data,
        |first, (x, dy, dx)| {
            input_gradient_leaf(first, shape.channels, x, dy, dx, &slopes);
        },
    );
}

dispatch! {
    fn input_gradient_leaf<I, F: Fn(usize) -> Slopes>(
        first: usize,
        channels: usize,
        x: Rows<&[f32]>,
        dy: Rows<&[f32]>,
        dx: Rows<&mut [f32]>,
        slopes: &F,
    ) {
        let inputs = x.data.chunks_exact(x.width).zip(dy.data.chunks_exact(dy.width));
        let planes = inputs.zip(dx.data.chunks_exact_mut(dx.width));
        for (plane, ((x, dy), dx)) in planes.enumerate() {
            let Slopes { mean, of_dy, of_x, constant } = slopes((first + plane) % channels);
            for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
                *dx = of_dy * I::fma(mean - x, of_x, dy - constant);
            }
        }
    }
}
