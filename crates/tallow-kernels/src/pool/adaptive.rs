//! Average and maximum over bins that divide a plane into a given number, PyTorch's
//! `adaptive_avg_pool2d` and `adaptive_max_pool2d`. With an output of 1 by 1 the average is the
//! global one.

use std::ops::Range;

use super::max::{check_countable, scatter};
use crate::error::{Error, Result, check_len, checked_product};
use crate::lanes;
use crate::parallel::{for_each, grain, rows};
use crate::simd::dispatch;

/// Sizes of an adaptive pooling; pairs are `[height, width]`.
///
/// Input `[planes, in_size]` with planes `N C`, output `[planes, out_size]`. Bin `i` of `out` along
/// an axis of `in` pixels goes from `floor(i in / out)` to `ceil((i + 1) in / out)`; neighbours may
/// overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AdaptivePool2dGeometry {
    /// Planes, `N C`; 0 is allowed.
    pub planes: usize,
    /// Size of an input plane.
    pub in_size: [usize; 2],
    /// Bins down and across.
    pub out_size: [usize; 2],
}

impl AdaptivePool2dGeometry {
    /// Elements of an input plane and of an output plane.
    pub(crate) fn check(&self, kernel: &'static str) -> Result<[usize; 2]> {
        if self.in_size.contains(&0) || self.out_size.contains(&0) {
            let problem = format!(
                "planes of {:?} can't be divided into {:?} bins; all sizes have to be at least 1",
                self.in_size, self.out_size
            );
            return Err(Error::Geometry { kernel, problem });
        }
        let lens = [self.in_size, self.out_size];
        for [height, width] in lens {
            checked_product(kernel, &[self.planes.max(1), height, width])?;
        }
        // The edges of bins are products of an input and an output size.
        for axis in [0, 1] {
            checked_product(kernel, &[self.in_size[axis], self.out_size[axis] + 1])?;
        }
        Ok(lens.map(|[height, width]| height * width))
    }

    fn is_global(&self) -> bool {
        self.out_size == [1, 1]
    }

    /// The bins of a plane, row by row, as ranges of rows and columns.
    fn bins(&self) -> impl Iterator<Item = [Range<usize>; 2]> {
        let Self {
            in_size, out_size, ..
        } = *self;
        let bin = move |axis: usize, i: usize| {
            let (input, output) = (in_size[axis], out_size[axis]);
            i * input / output..((i + 1) * input).div_ceil(output)
        };
        (0..out_size[0])
            .flat_map(move |row| (0..out_size[1]).map(move |col| [bin(0, row), bin(1, col)]))
    }
}

/// `y` = the average of each bin of `x` of `[planes, H, W]`, summed in `f64`.
///
/// # Errors
/// [`Error::Geometry`] where a size is zero; [`Error::Length`] for a slice of another length.
pub fn adaptive_avg_pool2d(
    geometry: &AdaptivePool2dGeometry,
    x: &[f32],
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "adaptive_avg_pool2d";
    let [in_len, out_len] = geometry.check(KERNEL)?;
    check_len(KERNEL, "x", x, geometry.planes * in_len)?;
    check_len(KERNEL, "y", y, geometry.planes * out_len)?;
    let data = (rows(x, in_len), rows(y, out_len));
    for_each(
        geometry.planes,
        grain(in_len + out_len),
        data,
        |_, (x, y)| {
            average_leaf(geometry, in_len, out_len, x.data, y.data);
        },
    );
    Ok(())
}

dispatch! {
    fn average_leaf<I>(
        geometry: &AdaptivePool2dGeometry, in_len: usize, out_len: usize, x: &[f32], y: &mut [f32]
    ) {
        let planes = x.chunks_exact(in_len).zip(y.chunks_exact_mut(out_len));
        if geometry.is_global() {
            let factor = 1.0 / in_len as f64;
            for (x, y) in planes {
                y[0] = (lanes::sum::<I>(x) * factor) as f32;
            }
            return;
        }
        for (x, y) in planes {
            for (y, [rows, cols]) in y.iter_mut().zip(geometry.bins()) {
                let count = rows.len() * cols.len();
                let sum: f64 = rows
                    .flat_map(|row| &x[row * geometry.in_size[1]..][cols.clone()])
                    .map(|&x| f64::from(x))
                    .sum();
                *y = (sum / count as f64) as f32;
            }
        }
    }
}

/// Gradient of [`adaptive_avg_pool2d`]: each pixel of `dx` of `[planes, H, W]` gets its share of the
/// `dy` of the bins that it lies in.
///
/// # Errors
/// As [`adaptive_avg_pool2d`].
pub fn adaptive_avg_pool2d_backward(
    geometry: &AdaptivePool2dGeometry,
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "adaptive_avg_pool2d_backward";
    let [in_len, out_len] = geometry.check(KERNEL)?;
    check_len(KERNEL, "dy", dy, geometry.planes * out_len)?;
    check_len(KERNEL, "dx", dx, geometry.planes * in_len)?;
    let data = (rows(dy, out_len), rows(dx, in_len));
    for_each(
        geometry.planes,
        grain(in_len + out_len),
        data,
        |_, (dy, dx)| {
            for (dy, dx) in dy
                .data
                .chunks_exact(out_len)
                .zip(dx.data.chunks_exact_mut(in_len))
            {
                if geometry.is_global() {
                    dx.fill(dy[0] / in_len as f32);
                    continue;
                }
                dx.fill(0.0);
                for (dy, [rows, cols]) in dy.iter().zip(geometry.bins()) {
                    let share = dy / (rows.len() * cols.len()) as f32;
                    for row in rows {
                        for dx in &mut dx[row * geometry.in_size[1]..][cols.clone()] {
                            *dx += share;
                        }
                    }
                }
            }
        },
    );
    Ok(())
}

/// `y` = the maximum of each bin of `x` of `[planes, H, W]`; `indices`, ties and NaN as in
/// [`max_pool2d`](super::max_pool2d).
///
/// # Errors
/// [`Error::Geometry`] where a size is zero, or a plane has more pixels than an index can count;
/// [`Error::Length`] for a slice of another length.
pub fn adaptive_max_pool2d(
    geometry: &AdaptivePool2dGeometry,
    x: &[f32],
    y: &mut [f32],
    indices: &mut [u32],
) -> Result<()> {
    const KERNEL: &str = "adaptive_max_pool2d";
    let [in_len, out_len] = geometry.check(KERNEL)?;
    check_countable(KERNEL, geometry.in_size)?;
    check_len(KERNEL, "x", x, geometry.planes * in_len)?;
    check_len(KERNEL, "y", y, geometry.planes * out_len)?;
    check_len(KERNEL, "indices", indices, geometry.planes * out_len)?;
    let data = (rows(x, in_len), rows(y, out_len), rows(indices, out_len));
    for_each(
        geometry.planes,
        grain(in_len + 2 * out_len),
        data,
        |_, (x, y, indices)| {
            let outputs = y
                .data
                .chunks_exact_mut(out_len)
                .zip(indices.data.chunks_exact_mut(out_len));
            for (x, (y, indices)) in x.data.chunks_exact(in_len).zip(outputs) {
                for ((y, index), bin) in y.iter_mut().zip(indices).zip(geometry.bins()) {
                    (*y, *index) = largest(x, geometry.in_size[1], bin);
                }
            }
        },
    );
    Ok(())
}

/// The first maximum of a bin, or its last NaN, and where it lies in the plane.
fn largest(x: &[f32], width: usize, [rows, cols]: [Range<usize>; 2]) -> (f32, u32) {
    let mut found = (f32::NEG_INFINITY, rows.start * width + cols.start);
    for row in rows {
        let start = row * width + cols.start;
        for (i, &x) in x[start..][..cols.len()].iter().enumerate() {
            if x > found.0 || x.is_nan() {
                found = (x, start + i);
            }
        }
    }
    (found.0, found.1 as u32)
}

/// Gradient of [`adaptive_max_pool2d`], as [`max_pool2d_backward`](super::max_pool2d_backward).
///
/// # Errors
/// As [`adaptive_max_pool2d`], and [`Error::Index`] for an index outside its plane; `dx` is then
/// not to be used.
pub fn adaptive_max_pool2d_backward(
    geometry: &AdaptivePool2dGeometry,
    indices: &[u32],
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "adaptive_max_pool2d_backward";
    let lens = geometry.check(KERNEL)?;
    scatter(KERNEL, geometry.planes, lens, indices, dy, dx)
}
