//! Mean and variance of each column.

use super::tiling::{TILE, Tiling};
use super::{check_lens, rows_of};
use crate::error::{Error, Result};
use crate::parallel::{for_each, rows};
use crate::simd::{Isa, dispatch};
use crate::workspace::Workspace;

/// Mean and biased variance of each channel, `[C]` each, and what batch norm adds to the variance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics<'a> {
    /// Means.
    pub mean: &'a [f32],
    /// Variances, the squares divided by the number of rows.
    pub var: &'a [f32],
    /// Added to variances; at least 0.
    pub eps: f64,
}

/// Wide rows that are summed in `f32`.
pub(super) const BLOCK: usize = 64;

/// Writes mean and biased variance of each channel of `x` of `[rows, C]`, each of `[C]`.
///
/// # Errors
/// [`Error::Geometry`] where `x` isn't whole rows of `channels`, or has none; [`Error::Length`] for a slice of
/// another length.
pub fn batch_stats(
    channels: usize,
    x: &[f32],
    mean: &mut [f32],
    var: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    const KERNEL: &str = "batch_stats";
    let count = rows_of(KERNEL, x, channels)?;
    check_lens(KERNEL, channels, &[("mean", mean), ("var", var)])?;
    if count == 0 {
        let problem = "no rows have no mean; pass at least one".to_owned();
        return Err(Error::Geometry {
            kernel: KERNEL,
            problem,
        });
    }
    let tiling = Tiling::new(channels);
    let leaf_rows = tiling.leaf_rows(BLOCK);
    let mut partial = workspace.take_doubles(count.div_ceil(leaf_rows) * 2 * channels);
    for_each(
        count.div_ceil(leaf_rows),
        1,
        rows(&mut *partial, 2 * channels),
        |leaf, partial| {
            let end = count.min((leaf + 1) * leaf_rows);
            let x = &x[leaf * leaf_rows * channels..end * channels];
            moments_leaf(tiling, x, partial.data);
        },
    );
    let (total, others) = partial.split_at_mut(2 * channels);
    let (total_mean, total_squares) = total.split_at_mut(channels);
    let mut joined = leaf_rows.min(count);
    for other in others.chunks_exact(2 * channels) {
        let (other_mean, other_squares) = other.split_at(channels);
        let share = Share::new(joined, leaf_rows.min(count - joined));
        for c in 0..channels {
            let part = [other_mean[c], other_squares[c]];
            share.join(&mut total_mean[c], &mut total_squares[c], part);
        }
        joined += share.rows;
    }
    for c in 0..channels {
        mean[c] = total_mean[c] as f32;
        var[c] = (total_squares[c] / count as f64) as f32;
    }
    Ok(())
}

/// How much a part of the rows weighs when it is joined to those before it (Chan, Golub and LeVeque 1979).
#[derive(Clone, Copy)]
struct Share {
    rows: usize,
    /// `b / (a + b)`.
    of_mean: f64,
    /// `a b / (a + b)`.
    of_distance: f64,
}

impl Share {
    #[inline(always)]
    fn new(before: usize, rows: usize) -> Self {
        let (a, b) = (before as f64, rows as f64);
        Self {
            rows,
            of_mean: b / (a + b),
            of_distance: a * b / (a + b),
        }
    }

    /// Joins a part's mean and squared distances from it.
    #[inline(always)]
    fn join(&self, mean: &mut f64, squares: &mut f64, [other_mean, other_squares]: [f64; 2]) {
        let distance = other_mean - *mean;
        *mean += distance * self.of_mean;
        *squares += other_squares + distance * distance * self.of_distance;
    }
}

dispatch! {
    /// Means of a leaf, then the sums of squared distances from them.
    fn moments_leaf<I>(tiling: Tiling, x: &[f32], moments: &mut [f64]) {
        let (width, channels) = (tiling.width(), tiling.channels);
        let (mean, squares) = moments.split_at_mut(channels);
        mean.fill(0.0);
        squares.fill(0.0);
        let mut before = 0;
        for block in x.chunks(BLOCK * width) {
            let count = block.len() / width;
            let (block, rest) = block.split_at(count * width);
            if count > 0 {
                for column in (0..width).step_by(TILE) {
                    let len = TILE.min(width - column);
                    let mut sums = [[0.0; TILE]; 2];
                    block_sums::<I>(block, width, column, len, &mut sums);
                    join_copies(tiling, before, count, &block[column..][..len], column, &sums, mean, squares);
                }
                before += count * tiling.copies;
            }
            for row in rest.chunks_exact(channels) {
                let share = Share::new(before, 1);
                for c in 0..channels {
                    share.join(&mut mean[c], &mut squares[c], [f64::from(row[c]), 0.0]);
                }
                before += 1;
            }
        }
    }
}

/// Joins what a wide row's columns from `column` on hold: all copies of the channels, one after another, or else a part
/// of the channels.
#[inline(always)]
fn join_copies(
    tiling: Tiling,
    before: usize,
    count: usize,
    shift: &[f32],
    column: usize,
    [sums, square_sums]: &[[f32; TILE]; 2],
    mean: &mut [f64],
    squares: &mut [f64],
) {
    let part = shift.len().min(tiling.channels);
    let first = column % tiling.channels;
    let (mean, squares) = (&mut mean[first..][..part], &mut squares[first..][..part]);
    for (copy, shift) in shift.chunks_exact(part).enumerate() {
        let at = copy * part..(copy + 1) * part;
        let share = Share::new(before + copy * count, count);
        join_block(
            share,
            shift,
            [&sums[at.clone()], &square_sums[at]],
            mean,
            squares,
        );
    }
}

/// Joins a block of which `sums` holds the sums of the differences from `shift` and of their squares.
#[inline(always)]
fn join_block(
    share: Share,
    shift: &[f32],
    [sums, square_sums]: [&[f32]; 2],
    mean: &mut [f64],
    squares: &mut [f64],
) {
    let len = mean.len();
    let (shift, sums, square_sums) = (&shift[..len], &sums[..len], &square_sums[..len]);
    let squares = &mut squares[..len];
    let per_row = 1.0 / share.rows as f64;
    for c in 0..len {
        let offset = f64::from(sums[c]) * per_row;
        let distances = f64::from(square_sums[c]) - f64::from(sums[c]) * offset;
        // Rounding may leave less than 0; a NaN stays one.
        let distances = if distances < 0.0 { 0.0 } else { distances };
        let part = [f64::from(shift[c]) + offset, distances];
        share.join(&mut mean[c], &mut squares[c], part);
    }
}

/// Sums of the differences from the block's first row and of their squares, for `len` columns from `column` on.
///
/// The first row is one of the rows: however far from the mean it is, the variance holds its distance too, so that the
/// squares lose no more than the number of rows in a block.
#[inline(always)]
fn block_sums<I: Isa>(
    block: &[f32],
    width: usize,
    column: usize,
    len: usize,
    [sums, squares]: &mut [[f32; TILE]; 2],
) {
    let (sums, squares) = (&mut sums[..len], &mut squares[..len]);
    let shift = &block[column..][..len];
    let mut fours = block.chunks_exact(4 * width);
    for four in &mut fours {
        let row = |row: usize| &four[row * width + column..][..len];
        let rows = [row(0), row(1), row(2), row(3)];
        add_rows::<I, 4>(shift, rows, sums, squares);
    }
    for row in fours.remainder().chunks_exact(width) {
        add_rows::<I, 1>(shift, [&row[column..][..len]], sums, squares);
    }
}

#[inline(always)]
fn add_rows<I: Isa, const ROWS: usize>(
    shift: &[f32],
    rows: [&[f32]; ROWS],
    sums: &mut [f32],
    squares: &mut [f32],
) {
    let len = sums.len();
    let (shift, squares) = (&shift[..len], &mut squares[..len]);
    let rows = rows.map(|row| &row[..len]);
    for c in 0..len {
        let (mut sum, mut square) = (sums[c], squares[c]);
        for row in &rows {
            let distance = row[c] - shift[c];
            sum += distance;
            square = I::fma(distance, distance, square);
        }
        (sums[c], squares[c]) = (sum, square);
    }
}
