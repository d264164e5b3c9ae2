//! The backward pass that sums: gradients of weight and bias.

use super::statistics::BLOCK;
use super::tiling::{TILE, Tiling};
use super::{Gate, Mask, Open, Relu, Relu6, Statistics, check_lens, check_operands, inverse_std};
use crate::error::Result;
use crate::parallel::{for_each, rows};
use crate::simd::{Isa, dispatch};
use crate::workspace::Workspace;

/// What [`backward_sums`] finds, `[C]` each: with `g` the gradient behind the activation and `xhat` the normalised
/// input, the gradients of bias and weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sums<'a> {
    /// `sum(g)`, the gradient of the bias.
    pub g: &'a [f32],
    /// `sum(g xhat)`, the gradient of the weight.
    pub g_xhat: &'a [f32],
}

/// Writes the gradients of bias, `sum(g)`, and weight, `sum(g xhat)`, each of `[C]`.
///
/// `g` is `dy` where `mask` lets it pass and `xhat = (x - mean) / sqrt(var + eps)`; `dy` and `x` are `[rows, C]`.
///
/// # Errors
/// [`Error::Geometry`](crate::Error::Geometry) where `x` isn't whole rows of `channels`;
/// [`Error::Length`](crate::Error::Length) for a slice of another length;
/// [`Error::Parameter`](crate::Error::Parameter) for a negative `eps`.
pub fn backward_sums(
    channels: usize,
    dy: &[f32],
    mask: Mask<'_>,
    x: &[f32],
    statistics: Statistics<'_>,
    sum_g: &mut [f32],
    sum_g_xhat: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    const KERNEL: &str = "backward_sums";
    let count = check_operands(KERNEL, channels, dy, mask, x, statistics)?;
    let outputs = [("sum_g", &*sum_g), ("sum_g_xhat", &*sum_g_xhat)];
    check_lens(KERNEL, channels, &outputs)?;
    let tiling = Tiling::new(channels);
    let leaf_rows = tiling.leaf_rows(BLOCK);
    let leaves = count.div_ceil(leaf_rows);
    let mut partial = workspace.take_doubles(leaves * 2 * channels);
    let y = mask.output_or(x);
    for_each(
        leaves,
        1,
        rows(&mut *partial, 2 * channels),
        |leaf, sums| {
            let at = leaf * leaf_rows * channels..count.min((leaf + 1) * leaf_rows) * channels;
            let (dy, y, x) = (&dy[at.clone()], &y[at.clone()], &x[at]);
            let leaf = match mask {
                Mask::None => sums_leaf::<Open>,
                Mask::Relu(_) => sums_leaf::<Relu>,
                Mask::Relu6(_) => sums_leaf::<Relu6>,
            };
            leaf(tiling, statistics.mean, dy, y, x, sums.data);
        },
    );
    for c in 0..channels {
        let (mut g, mut products) = (0.0, 0.0);
        for sums in partial.chunks_exact(2 * channels) {
            g += sums[c];
            products += sums[channels + c];
        }
        sum_g[c] = g as f32;
        let invstd = inverse_std(statistics.var[c], statistics.eps);
        sum_g_xhat[c] = (products * f64::from(invstd)) as f32;
    }
    Ok(())
}

dispatch! {
    /// `sum(g)` of a leaf, then `sum(g (x - mean))`.
    fn sums_leaf<I, G: Gate>(
        tiling: Tiling, mean: &[f32], dy: &[f32], y: &[f32], x: &[f32], totals: &mut [f64]
    ) {
        let (width, channels) = (tiling.width(), tiling.channels);
        let mut buffer = [0.0; TILE];
        let mean = tiling.repeat(mean, &mut buffer);
        totals.fill(0.0);
        let (total_g, total_products) = totals.split_at_mut(channels);
        for block in (0..x.len()).step_by(BLOCK * width) {
            let end = x.len().min(block + BLOCK * width);
            for column in (0..width).step_by(TILE) {
                let len = TILE.min(width - column);
                let mut sums = [[0.0; TILE]; 2];
                for row in (block + column..end).step_by(width) {
                    let at = row..end.min(row + len);
                    let mean = &mean[column..][..at.len()];
                    add_products::<I, G>(&dy[at.clone()], &y[at.clone()], &x[at], mean, &mut sums);
                }
                let part = len.min(channels);
                let at = column % channels;
                for copy in 0..len / part {
                    for c in 0..part {
                        total_g[at + c] += f64::from(sums[0][copy * part + c]);
                        total_products[at + c] += f64::from(sums[1][copy * part + c]);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn add_products<I: Isa, G: Gate>(
    dy: &[f32],
    y: &[f32],
    x: &[f32],
    mean: &[f32],
    [sums, products]: &mut [[f32; TILE]; 2],
) {
    let len = x.len();
    let (dy, y, mean) = (&dy[..len], &y[..len], &mean[..len]);
    let (sums, products) = (&mut sums[..len], &mut products[..len]);
    for i in 0..len {
        let g = G::gradient(y[i], dy[i]);
        sums[i] += g;
        products[i] = I::fma(g, x[i] - mean[i], products[i]);
    }
}
