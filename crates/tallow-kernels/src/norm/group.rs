//! Group norm (Wu and He 2018), PyTorch's `group_norm`: each sample's channels in groups, mean and
//! biased variance of each group over its channels and positions, one `gamma` and `beta` a channel.

use super::{check_eps, mean_and_variance};
use crate::channels::{Plane, PlaneSums, for_each_block};
use crate::error::{Error, Result, check_len};
use crate::lanes::{self, for_lanes};
use crate::parallel::{for_each, grain, rows};
use crate::shape::ChannelShape;
use crate::simd::{Isa, dispatch};

/// Normalises each group of each sample of `x` of `[N, C, S]`; `gamma` and `beta` are `[C]`.
///
/// Writes `y`, and of `[N, groups]` each `save_mean` and `save_invstd` for
/// [`group_norm_backward`].
///
/// # Errors
/// [`Error::Length`] for a slice of another length; [`Error::Geometry`] where `groups` doesn't
/// divide the channels; [`Error::Parameter`] for a negative `eps`.
pub fn group_norm(
    shape: &ChannelShape,
    groups: usize,
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    eps: f64,
    y: &mut [f32],
    save_mean: &mut [f32],
    save_invstd: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "group_norm";
    let len = shape.len(KERNEL)?;
    check_groups(KERNEL, shape, groups)?;
    check_len(KERNEL, "x", x, len)?;
    check_len(KERNEL, "y", y, len)?;
    check_len(KERNEL, "gamma", gamma, shape.channels)?;
    check_len(KERNEL, "beta", beta, shape.channels)?;
    check_len(KERNEL, "save_mean", save_mean, shape.batch * groups)?;
    check_len(KERNEL, "save_invstd", save_invstd, shape.batch * groups)?;
    check_eps(KERNEL, eps)?;
    if len == 0 {
        return Ok(());
    }
    let width = shape.channels / groups * shape.spatial;
    let data = (rows(x, width), rows(y, width), save_mean, save_invstd);
    for_each(
        shape.batch * groups,
        grain(width),
        data,
        |first, (x, y, mean, invstd)| {
            let groups = Groups {
                shape,
                groups,
                first,
            };
            forward_leaf(&groups, x.data, gamma, beta, eps, y.data, mean, invstd);
        },
    );
    Ok(())
}

fn check_groups(kernel: &'static str, shape: &ChannelShape, groups: usize) -> Result<()> {
    if groups > 0 && shape.channels.is_multiple_of(groups) {
        return Ok(());
    }
    Err(Error::Geometry {
        kernel,
        problem: format!(
            "{} channels can't be put in {groups} equal groups; choose a divisor",
            shape.channels
        ),
    })
}

/// The groups of a leaf: all of a shape, counted from `first` on.
struct Groups<'a> {
    shape: &'a ChannelShape,
    groups: usize,
    first: usize,
}

impl Groups<'_> {
    fn channels_per_group(&self) -> usize {
        self.shape.channels / self.groups
    }

    /// Elements of one group of one sample.
    fn width(&self) -> usize {
        self.channels_per_group() * self.shape.spatial
    }

    /// First channel of a group of this leaf.
    fn first_channel(&self, group: usize) -> usize {
        (self.first + group) % self.groups * self.channels_per_group()
    }
}

dispatch! {
    fn forward_leaf<I>(
        groups: &Groups<'_>,
        x: &[f32],
        gamma: &[f32],
        beta: &[f32],
        eps: f64,
        y: &mut [f32],
        save_mean: &mut [f32],
        save_invstd: &mut [f32],
    ) {
        let (width, spatial) = (groups.width(), groups.shape.spatial);
        for (group, (mean, invstd)) in save_mean.iter_mut().zip(save_invstd).enumerate() {
            let at = group * width..(group + 1) * width;
            let (x, y) = (&x[at.clone()], &mut y[at]);
            let (sum, squares) = lanes::moments::<I>(x);
            let (group_mean, variance) = mean_and_variance([sum, squares], width as f64);
            *mean = group_mean as f32;
            *invstd = (1.0 / (variance + eps).sqrt()) as f32;
            let (mean, invstd, channel) = (*mean, *invstd, groups.first_channel(group));
            let planes = x.chunks_exact(spatial).zip(y.chunks_exact_mut(spatial));
            for (i, (x, y)) in planes.enumerate() {
                let (scale, shift) = (gamma[channel + i] * invstd, beta[channel + i]);
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = I::fma(x - mean, scale, shift);
                }
            }
        }
    }
}

/// Gradients of [`group_norm`], from its input `x`, the statistics it saved, and `dy`.
///
/// Writes `dx` of `[N, C, S]`, `dgamma` and `dbeta` of `[C]`. With `g = gamma dy` and means over a
/// group, `dx = invstd (g - mean(g) - xhat mean(g xhat))`.
///
/// # Errors
/// [`Error::Length`] for a slice of another length; [`Error::Geometry`] where `groups` doesn't
/// divide the channels.
pub fn group_norm_backward(
    shape: &ChannelShape,
    groups: usize,
    x: &[f32],
    dy: &[f32],
    gamma: &[f32],
    save_mean: &[f32],
    save_invstd: &[f32],
    dx: &mut [f32],
    dgamma: &mut [f32],
    dbeta: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "group_norm_backward";
    let len = shape.len(KERNEL)?;
    check_groups(KERNEL, shape, groups)?;
    check_len(KERNEL, "x", x, len)?;
    check_len(KERNEL, "dy", dy, len)?;
    check_len(KERNEL, "dx", dx, len)?;
    check_len(KERNEL, "gamma", gamma, shape.channels)?;
    check_len(KERNEL, "dgamma", dgamma, shape.channels)?;
    check_len(KERNEL, "dbeta", dbeta, shape.channels)?;
    check_len(KERNEL, "save_mean", save_mean, shape.batch * groups)?;
    check_len(KERNEL, "save_invstd", save_invstd, shape.batch * groups)?;
    let sums = ParameterSums {
        x,
        dy,
        mean: save_mean,
        invstd: save_invstd,
        groups,
        shape,
    };
    for_each_block(shape, (dgamma, dbeta), &sums, |sums, (dgamma, dbeta)| {
        for ((dgamma, dbeta), sums) in dgamma.iter_mut().zip(dbeta).zip(sums) {
            *dbeta = sums[0] as f32;
            *dgamma = sums[1] as f32;
        }
    });
    if len == 0 {
        return Ok(());
    }
    let width = shape.channels / groups * shape.spatial;
    let data = (
        rows(x, width),
        rows(dy, width),
        save_mean,
        save_invstd,
        rows(dx, width),
    );
    for_each(
        shape.batch * groups,
        grain(width),
        data,
        |first, (x, dy, mean, invstd, dx)| {
            let groups = Groups {
                shape,
                groups,
                first,
            };
            input_leaf(&groups, x.data, dy.data, gamma, mean, invstd, dx.data);
        },
    );
    Ok(())
}

/// `sum(dy)` and `sum(dy xhat)` of each channel.
struct ParameterSums<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    mean: &'a [f32],
    invstd: &'a [f32],
    groups: usize,
    shape: &'a ChannelShape,
}

impl PlaneSums for ParameterSums<'_> {
    #[inline(always)]
    fn add_plane<I: Isa>(&self, plane: Plane, sums: &mut [I::Sums; 2]) {
        let group = plane.channel / (self.shape.channels / self.groups);
        let statistics = plane.sample * self.groups + group;
        let (mean, invstd) = (
            I::splat(self.mean[statistics]),
            I::splat(self.invstd[statistics]),
        );
        let [mut sum, mut products] = *sums;
        for_lanes!(I, (x, dy) in (self.x[plane.range()], self.dy[plane.range()]) => {
            sum = I::accumulate(sum, dy);
            products = I::accumulate_product(products, dy, I::mul(I::sub(x, mean), invstd));
        });
        *sums = [sum, products];
    }
}

dispatch! {
    fn input_leaf<I>(
        groups: &Groups<'_>,
        x: &[f32],
        dy: &[f32],
        gamma: &[f32],
        save_mean: &[f32],
        save_invstd: &[f32],
        dx: &mut [f32],
    ) {
        let (width, spatial) = (groups.width(), groups.shape.spatial);
        for (group, (&mean, &invstd)) in save_mean.iter().zip(save_invstd).enumerate() {
            let at = group * width..(group + 1) * width;
            let (x, dy, dx) = (&x[at.clone()], &dy[at.clone()], &mut dx[at]);
            let gammas = &gamma[groups.first_channel(group)..];
            let (mut sum, mut projection) = (0.0, 0.0);
            let planes = x.chunks_exact(spatial).zip(dy.chunks_exact(spatial));
            for ((x, dy), &gamma) in planes.clone().zip(gammas) {
                let (mut dy_sum, mut products, splat) = (I::zero(), I::zero(), I::splat(mean));
                for_lanes!(I, (x, dy) in (x, dy) => {
                    dy_sum = I::accumulate(dy_sum, dy);
                    products = I::accumulate(products, I::mul(dy, I::sub(x, splat)));
                });
                sum += f64::from(gamma) * lanes::total::<I>(dy_sum);
                projection += f64::from(gamma) * lanes::total::<I>(products);
            }
            let constant = (sum / width as f64) as f32;
            let of_x = (projection / width as f64 * f64::from(invstd) * f64::from(invstd)) as f32;
            for (((x, dy), dx), &gamma) in planes.zip(dx.chunks_exact_mut(spatial)).zip(gammas) {
                for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
                    *dx = invstd * I::fma(mean - x, of_x, I::fma(dy, gamma, -constant));
                }
            }
        }
    }
}
