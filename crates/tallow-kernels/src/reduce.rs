//! Sums: of everything, along one axis, or of each channel. Means and the gradients of
//! broadcasting are made of these.
//!
//! All sums are accumulated in `f64` and rounded once.

use std::ops::Range;

use crate::channels::{Plane, PlaneSums, for_each_block};
use crate::error::{Result, check_len, checked_product};
use crate::lanes::{self, for_lanes};
use crate::parallel::{LEAF, Rows, for_each, grain, reduce, rows};
use crate::shape::ChannelShape;
use crate::simd::{Isa, LANES, dispatch};

dispatch! {
    fn sum_leaf<I>(x: &[f32]) -> f64 {
        lanes::sum::<I>(x)
    }
}

dispatch! {
    fn dot_leaf<I>(x: &[f32], y: &[f32]) -> f64 {
        lanes::dot::<I>(x, y)
    }
}

/// Sum of all elements.
pub fn sum(x: &[f32]) -> f64 {
    reduce(x.len(), LEAF, x, |_, x| sum_leaf(x), |a, b| a + b).unwrap_or(0.0)
}

/// Sum of the squares of all elements: the square of the 2-norm, as gradient clipping needs it.
pub fn sum_squares(x: &[f32]) -> f64 {
    reduce(x.len(), LEAF, x, |_, x| dot_leaf(x, x), |a, b| a + b).unwrap_or(0.0)
}

/// `sum(x y)`.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) unless `y` is as long as `x`.
pub fn dot(x: &[f32], y: &[f32]) -> Result<f64> {
    check_len("dot", "y", y, x.len())?;
    let leaf = |_, (x, y): (&[f32], &[f32])| dot_leaf(x, y);
    Ok(reduce(x.len(), LEAF, (x, y), leaf, |a, b| a + b).unwrap_or(0.0))
}

/// `y[o, i] = factor * sum over l of x[o, l, i]` for `x` of shape `[outer, len, inner]`; a
/// `factor` of `1 / len` makes it a mean.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) unless `x` and `y` have those shapes.
pub fn sum_axis(
    [outer, len, inner]: [usize; 3],
    x: &[f32],
    factor: f32,
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "sum_axis";
    check_len(
        KERNEL,
        "x",
        x,
        checked_product(KERNEL, &[outer, len, inner])?,
    )?;
    check_len(KERNEL, "y", y, checked_product(KERNEL, &[outer, inner])?)?;
    let factor = f64::from(factor);
    if len == 0 || y.is_empty() {
        y.fill(0.0);
    } else if inner == 1 {
        for_each(outer, grain(len), (rows(x, len), y), |_, (x, y)| {
            sum_rows_leaf(len, x.data, factor, y);
        });
    } else {
        for_each(outer, grain(len * inner), rows(y, inner), |first, y| {
            for (o, y) in y.data.chunks_exact_mut(inner).enumerate() {
                let x = &x[(first + o) * len * inner..][..len * inner];
                sum_columns(inner, x, factor, y);
            }
        });
    }
    Ok(())
}

dispatch! {
    fn sum_rows_leaf<I>(len: usize, x: &[f32], factor: f64, y: &mut [f32]) {
        for (x, y) in x.chunks_exact(len).zip(y) {
            *y = (lanes::sum::<I>(x) * factor) as f32;
        }
    }
}

/// Columns that are summed side by side: long enough runs that memory streams.
const COLUMNS: usize = 16 * LANES;

/// `y[i] = factor * sum over rows of x[row, i]` for `x` of rows of `width` elements.
fn sum_columns(width: usize, x: &[f32], factor: f64, y: &mut [f32]) {
    let height = x.len() / width;
    for_each(width, COLUMNS, y, |first, y| {
        let columns = first..first + y.len();
        let leaf = |_, x: Rows<&[f32]>| columns_leaf(width, columns.clone(), x.data);
        let sums = reduce(height, grain(y.len()), rows(x, width), leaf, add_arrays);
        for (y, sum) in y.iter_mut().zip(sums.unwrap_or([0.0; COLUMNS])) {
            *y = (sum * factor) as f32;
        }
    });
}

dispatch! {
    fn columns_leaf<I>(width: usize, columns: Range<usize>, x: &[f32]) -> [f64; COLUMNS] {
        let mut sums = [I::zero(); COLUMNS / LANES];
        for row in (0..x.len()).step_by(width) {
            let columns = row + columns.start..row + columns.end;
            let ahead = columns.start + lanes::ROWS_AHEAD * width;
            for (i, (sums, chunk)) in sums.iter_mut().zip(x[columns].chunks(LANES)).enumerate() {
                lanes::prefetch(x, ahead + i * LANES);
                *sums = I::accumulate(*sums, lanes::load::<I>(chunk));
            }
        }
        let mut y = [0.0; COLUMNS];
        for (y, sums) in y.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
            *y = I::sums(sums);
        }
        y
    }
}

pub(crate) fn add_arrays<const N: usize>(mut a: [f64; N], b: [f64; N]) -> [f64; N] {
    for (a, b) in a.iter_mut().zip(b) {
        *a += b;
    }
    a
}

/// `y[c] = sum over n and s of x[n, c, s]`: the gradient of a bias.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) unless `x` has the shape and `y` is `[C]`.
pub fn sum_per_channel(shape: &ChannelShape, x: &[f32], y: &mut [f32]) -> Result<()> {
    const KERNEL: &str = "sum_per_channel";
    check_len(KERNEL, "x", x, shape.len(KERNEL)?)?;
    check_len(KERNEL, "y", y, shape.channels)?;
    if shape.spatial == 1 {
        return sum_axis([1, shape.batch, shape.channels], x, 1.0, y);
    }
    for_each_block(shape, y, &PlaneSum { x }, |sums, y| {
        for (y, [sum, _]) in y.iter_mut().zip(sums) {
            *y = *sum as f32;
        }
    });
    Ok(())
}

struct PlaneSum<'a> {
    x: &'a [f32],
}

impl PlaneSums for PlaneSum<'_> {
    #[inline(always)]
    fn add_plane<I: Isa>(&self, plane: Plane, sums: &mut [I::Sums; 2]) {
        let mut sum = sums[0];
        for_lanes!(I, x in self.x[plane.range()] => {
            sum = I::accumulate(sum, x);
        });
        sums[0] = sum;
    }
}
