//! Layer norm (Ba, Kiros and Hinton 2016), PyTorch's `layer_norm` over the last axes, folded
//! into rows: `y = (x - mean) / sqrt(var + eps) * gamma + beta` with mean and biased variance of
//! each row.

use std::ops::Range;

use super::{check_eps, mean_and_variance};
use crate::error::{Result, check_len, checked_product};
use crate::lanes::{self, for_lanes};
use crate::parallel::{Rows, for_each, grain, reduce, rows};
use crate::simd::{LANES, dispatch};

/// Normalises each row of `x` of `[rows, cols]`; `gamma` and `beta` are `[cols]`.
///
/// Writes `y`, and of `[rows]` each `save_mean` and `save_invstd` for [`layer_norm_backward`].
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) for a slice of another length;
/// [`Error::Parameter`](crate::Error::Parameter) for a negative `eps`.
pub fn layer_norm(
    [count, width]: [usize; 2],
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    eps: f64,
    y: &mut [f32],
    save_mean: &mut [f32],
    save_invstd: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "layer_norm";
    let len = checked_product(KERNEL, &[count, width])?;
    check_len(KERNEL, "x", x, len)?;
    check_len(KERNEL, "y", y, len)?;
    check_len(KERNEL, "gamma", gamma, width)?;
    check_len(KERNEL, "beta", beta, width)?;
    check_len(KERNEL, "save_mean", save_mean, count)?;
    check_len(KERNEL, "save_invstd", save_invstd, count)?;
    check_eps(KERNEL, eps)?;
    let data = (rows(x, width), rows(y, width), save_mean, save_invstd);
    for_each(count, grain(width), data, |_, (x, y, mean, invstd)| {
        forward_leaf(width, x.data, gamma, beta, eps, y.data, mean, invstd);
    });
    Ok(())
}

dispatch! {
    fn forward_leaf<I>(
        width: usize,
        x: &[f32],
        gamma: &[f32],
        beta: &[f32],
        eps: f64,
        y: &mut [f32],
        save_mean: &mut [f32],
        save_invstd: &mut [f32],
    ) {
        for (row, (mean, invstd)) in save_mean.iter_mut().zip(save_invstd).enumerate() {
            let at = row * width..(row + 1) * width;
            let (x, y) = (&x[at.clone()], &mut y[at]);
            let (sum, squares) = lanes::moments::<I>(x);
            let (row_mean, variance) = mean_and_variance([sum, squares], width as f64);
            *mean = row_mean as f32;
            *invstd = (1.0 / (variance + eps).sqrt()) as f32;
            let (mean, invstd) = (*mean, *invstd);
            for (((y, &x), &gamma), &beta) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
                *y = I::fma((x - mean) * invstd, gamma, beta);
            }
        }
    }
}

/// Gradients of [`layer_norm`], from its input `x`, the statistics it saved, and `dy`.
///
/// Writes `dx` of `[rows, cols]`, `dgamma` and `dbeta` of `[cols]`. With `g = gamma dy` and means
/// over a row, `dx = invstd (g - mean(g) - xhat mean(g xhat))`.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) for a slice of another length.
pub fn layer_norm_backward(
    [count, width]: [usize; 2],
    x: &[f32],
    dy: &[f32],
    gamma: &[f32],
    save_mean: &[f32],
    save_invstd: &[f32],
    dx: &mut [f32],
    dgamma: &mut [f32],
    dbeta: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "layer_norm_backward";
    let len = checked_product(KERNEL, &[count, width])?;
    check_len(KERNEL, "x", x, len)?;
    check_len(KERNEL, "dy", dy, len)?;
    check_len(KERNEL, "dx", dx, len)?;
    check_len(KERNEL, "gamma", gamma, width)?;
    check_len(KERNEL, "dgamma", dgamma, width)?;
    check_len(KERNEL, "dbeta", dbeta, width)?;
    check_len(KERNEL, "save_mean", save_mean, count)?;
    check_len(KERNEL, "save_invstd", save_invstd, count)?;
    let data = (
        rows(x, width),
        rows(dy, width),
        save_mean,
        save_invstd,
        rows(dx, width),
    );
    for_each(count, grain(width), data, |_, (x, dy, mean, invstd, dx)| {
        input_leaf(width, x.data, dy.data, gamma, mean, invstd, dx.data);
    });
    parameter_gradients(width, x, dy, save_mean, save_invstd, dgamma, dbeta);
    Ok(())
}

dispatch! {
    fn input_leaf<I>(
        width: usize,
        x: &[f32],
        dy: &[f32],
        gamma: &[f32],
        save_mean: &[f32],
        save_invstd: &[f32],
        dx: &mut [f32],
    ) {
        for (row, (&mean, &invstd)) in save_mean.iter().zip(save_invstd).enumerate() {
            let at = row * width..(row + 1) * width;
            let (x, dy, dx) = (&x[at.clone()], &dy[at.clone()], &mut dx[at]);
            for ((dx, &dy), &gamma) in dx.iter_mut().zip(dy).zip(gamma) {
                *dx = dy * gamma;
            }
            let (mut sum, mut products, splat) = (I::zero(), I::zero(), I::splat(mean));
            for_lanes!(I, (x, g) in (x, dx) => {
                sum = I::accumulate(sum, g);
                products = I::accumulate(products, I::mul(g, I::sub(x, splat)));
            });
            let per_element = 1.0 / width as f64;
            let constant = (lanes::total::<I>(sum) * per_element) as f32;
            let projection = lanes::total::<I>(products) * per_element;
            let of_x = (projection * f64::from(invstd) * f64::from(invstd)) as f32;
            for (dx, &x) in dx.iter_mut().zip(x) {
                *dx = invstd * I::fma(mean - x, of_x, *dx - constant);
            }
        }
    }
}

/// Columns that a leaf of the parameter gradients sums side by side: long enough runs that memory
/// streams.
const COLUMNS: usize = 16 * LANES;
const BLOCKS: usize = COLUMNS / LANES;

/// Rows of `x` and `dy`, with each row's mean and inverse deviation.
type NormalisedRows<'a> = (Rows<&'a [f32]>, Rows<&'a [f32]>, &'a [f32], &'a [f32]);

/// `dgamma` and `dbeta` of one block of columns.
type ColumnSums = [[f64; COLUMNS]; 2];

/// `dbeta[c] = sum over rows of dy`, `dgamma[c] = sum over rows of dy xhat`.
fn parameter_gradients(
    width: usize,
    x: &[f32],
    dy: &[f32],
    mean: &[f32],
    invstd: &[f32],
    dgamma: &mut [f32],
    dbeta: &mut [f32],
) {
    for_each(width, COLUMNS, (dgamma, dbeta), |first, (dgamma, dbeta)| {
        let columns = first..first + dgamma.len();
        let data = (rows(x, width), rows(dy, width), mean, invstd);
        let leaf = |_, (x, dy, mean, invstd): NormalisedRows<'_>| {
            columns_leaf(width, columns.clone(), x.data, dy.data, mean, invstd)
        };
        let sums = reduce(
            mean.len(),
            grain(columns.len()),
            data,
            leaf,
            add_column_sums,
        );
        let [gamma_sums, beta_sums] = sums.unwrap_or([[0.0; COLUMNS]; 2]);
        for ((dgamma, dbeta), (gamma_sum, beta_sum)) in dgamma
            .iter_mut()
            .zip(dbeta)
            .zip(gamma_sums.into_iter().zip(beta_sums))
        {
            *dgamma = gamma_sum as f32;
            *dbeta = beta_sum as f32;
        }
    });
}

dispatch! {
    fn columns_leaf<I>(
        width: usize,
        columns: Range<usize>,
        x: &[f32],
        dy: &[f32],
        mean: &[f32],
        invstd: &[f32],
    ) -> ColumnSums {
        let (mut gamma_sums, mut beta_sums) = ([I::zero(); BLOCKS], [I::zero(); BLOCKS]);
        for (row, (&mean, &invstd)) in mean.iter().zip(invstd).enumerate() {
            let at = row * width + columns.start..row * width + columns.end;
            let (mean, invstd) = (I::splat(mean), I::splat(invstd));
            let ahead = at.start + lanes::ROWS_AHEAD * width;
            let chunks = x[at.clone()].chunks(LANES).zip(dy[at].chunks(LANES));
            let sums = gamma_sums.iter_mut().zip(&mut beta_sums);
            for (i, ((gamma_sum, beta_sum), (x_chunk, dy_chunk))) in sums.zip(chunks).enumerate() {
                lanes::prefetch(x, ahead + i * LANES);
                lanes::prefetch(dy, ahead + i * LANES);
                let (x, dy) = (lanes::load::<I>(x_chunk), lanes::load::<I>(dy_chunk));
                let xhat = I::mul(I::sub(x, mean), invstd);
                *gamma_sum = I::accumulate_product(*gamma_sum, dy, xhat);
                *beta_sum = I::accumulate(*beta_sum, dy);
            }
        }
        let mut sums = [[0.0; COLUMNS]; 2];
        for block in 0..BLOCKS {
            let at = block * LANES..(block + 1) * LANES;
            sums[0][at.clone()].copy_from_slice(&I::sums(gamma_sums[block]));
            sums[1][at].copy_from_slice(&I::sums(beta_sums[block]));
        }
        sums
    }
}

fn add_column_sums(mut a: ColumnSums, b: ColumnSums) -> ColumnSums {
    for (a, b) in a.as_flattened_mut().iter_mut().zip(b.as_flattened()) {
        *a += b;
    }
    a
}
