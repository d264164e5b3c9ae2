//! Average over windows, PyTorch's `avg_pool2d`.

use std::ops::Range;

use super::{Axis, Pool2dGeometry};
use crate::error::{Error, Result, check_len};
use crate::parallel::{for_each, grain, rows};
use crate::simd::dispatch;

/// `y` = the average of each window of `x` of `[planes, H, W]`.
///
/// The sum of a window's pixels is divided by their number, to which pixels of the padding count
/// if `count_include_pad`; what `ceil_mode` adds beyond the padding never counts.
///
/// # Errors
/// [`Error::Geometry`] as in [`Pool2dGeometry::new`], or for a dilation other than 1;
/// [`Error::Length`] for a slice of another length.
pub fn avg_pool2d(
    geometry: &Pool2dGeometry,
    count_include_pad: bool,
    x: &[f32],
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "avg_pool2d";
    check_geometry(KERNEL, geometry)?;
    let [in_len, out_len] = geometry.plane_lens();
    check_len(KERNEL, "x", x, geometry.planes * in_len)?;
    check_len(KERNEL, "y", y, geometry.planes * out_len)?;
    let axes = geometry.axes();
    let data = (rows(x, in_len), rows(y, out_len));
    for_each(
        geometry.planes,
        grain(in_len + out_len),
        data,
        |_, (x, y)| {
            forward_leaf(&axes, count_include_pad, x.data, y.data);
        },
    );
    Ok(())
}

/// Gradient of [`avg_pool2d`]: each pixel of `dx` of `[planes, H, W]` gets its share of the `dy` of
/// the windows that it lies in.
///
/// # Errors
/// As [`avg_pool2d`].
pub fn avg_pool2d_backward(
    geometry: &Pool2dGeometry,
    count_include_pad: bool,
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "avg_pool2d_backward";
    check_geometry(KERNEL, geometry)?;
    let [in_len, out_len] = geometry.plane_lens();
    check_len(KERNEL, "dy", dy, geometry.planes * out_len)?;
    check_len(KERNEL, "dx", dx, geometry.planes * in_len)?;
    let axes = geometry.axes();
    let data = (rows(dy, out_len), rows(dx, in_len));
    for_each(
        geometry.planes,
        grain(in_len + out_len),
        data,
        |_, (dy, dx)| {
            backward_leaf(&axes, count_include_pad, dy.data, dx.data);
        },
    );
    Ok(())
}

pub(crate) fn check_geometry(kernel: &'static str, geometry: &Pool2dGeometry) -> Result<()> {
    geometry.check()?;
    if geometry.dilation == [1, 1] {
        return Ok(());
    }
    let problem = format!(
        "dilation {:?} is for max pooling only; use [1, 1]",
        geometry.dilation
    );
    Err(Error::Geometry { kernel, problem })
}

/// Pixels along one axis that a window is divided by.
#[inline(always)]
pub(crate) fn counted(axis: &Axis, window: usize, count_include_pad: bool) -> usize {
    let start = window * axis.stride;
    let end = (start + axis.kernel).min(axis.input + 2 * axis.padding);
    if count_include_pad {
        return end - start;
    }
    end.min(axis.input + axis.padding) - start.max(axis.padding)
}

dispatch! {
    fn forward_leaf<I>(axes: &[Axis; 2], count_include_pad: bool, x: &[f32], y: &mut [f32]) {
        let [vertical, horizontal] = axes;
        let planes = x.chunks_exact(vertical.input * horizontal.input);
        for (x, y) in planes.zip(y.chunks_exact_mut(vertical.output * horizontal.output)) {
            for (row, y) in y.chunks_exact_mut(horizontal.output).enumerate() {
                y.fill(0.0);
                for tap in vertical.taps(row) {
                    add_input_row(horizontal, &x[vertical.pixel(row, tap) * horizontal.input..], y);
                }
                let height = counted(vertical, row, count_include_pad);
                for (window, y) in y.iter_mut().enumerate() {
                    *y /= (height * counted(horizontal, window, count_include_pad)) as f32;
                }
            }
        }
    }
}

/// Adds to each window of a row what it sees of the input row that `x` begins with.
#[inline(always)]
fn add_input_row(axis: &Axis, x: &[f32], y: &mut [f32]) {
    let done = match (axis.stride, axis.kernel) {
        (1, 2) => add_interior::<1, 2>(axis, x, y),
        (1, 3) => add_interior::<1, 3>(axis, x, y),
        (2, 2) => add_interior::<2, 2>(axis, x, y),
        (2, 3) => add_interior::<2, 3>(axis, x, y),
        _ => 0..0,
    };
    for window in (0..done.start).chain(done.end..axis.output) {
        let taps = axis.taps(window);
        let left = axis.pixel(window, taps.start);
        for x in &x[left..left + taps.len()] {
            y[window] += x;
        }
    }
}

/// [`add_input_row`] for the windows that lie wholly in the input; gives those that were done.
#[inline(always)]
fn add_interior<const STRIDE: usize, const TAPS: usize>(
    axis: &Axis,
    x: &[f32],
    y: &mut [f32],
) -> Range<usize> {
    let (windows, taps) = axis.interior_taps::<STRIDE, TAPS>(x);
    let count = windows.len();
    let y = &mut y[windows.clone()][..count];
    for i in 0..count {
        for x in taps {
            y[i] += x[i][0];
        }
    }
    windows
}

/// Windows whose shares are worked out once for all their taps.
const BLOCK: usize = 64;

dispatch! {
    fn backward_leaf<I>(axes: &[Axis; 2], count_include_pad: bool, dy: &[f32], dx: &mut [f32]) {
        let [vertical, horizontal] = axes;
        dx.fill(0.0);
        let planes = dx.chunks_exact_mut(vertical.input * horizontal.input);
        for (dx, dy) in planes.zip(dy.chunks_exact(vertical.output * horizontal.output)) {
            for (row, dy) in dy.chunks_exact(horizontal.output).enumerate() {
                let height = counted(vertical, row, count_include_pad);
                for (block, dy) in dy.chunks(BLOCK).enumerate() {
                    let first = block * BLOCK;
                    let mut shares = [0.0; BLOCK];
                    for (i, (share, dy)) in shares.iter_mut().zip(dy).enumerate() {
                        let width = counted(horizontal, first + i, count_include_pad);
                        *share = dy / (height * width) as f32;
                    }
                    let shares = &shares[..dy.len()];
                    for tap in vertical.taps(row) {
                        let start = vertical.pixel(row, tap) * horizontal.input;
                        add_shares(horizontal, first, shares, &mut dx[start..][..horizontal.input]);
                    }
                }
            }
        }
    }
}

/// Adds the share of each window from `first` on to the pixels of one input row that it covers.
#[inline(always)]
fn add_shares(axis: &Axis, first: usize, shares: &[f32], dx: &mut [f32]) {
    let Range { start, end } = axis.interior();
    let inside = start.max(first)..end.min(first + shares.len());
    let inside = if inside.is_empty() {
        first..first
    } else {
        inside
    };
    if !inside.is_empty() {
        let shares = &shares[inside.start - first..inside.end - first];
        for tap in 0..axis.kernel {
            let dx = &mut dx[axis.pixel(inside.start, tap)..];
            match axis.stride {
                1 => dx
                    .iter_mut()
                    .zip(shares)
                    .for_each(|(dx, share)| *dx += share),
                2 => add_every_other(shares, dx),
                stride => {
                    for (dx, share) in dx.iter_mut().step_by(stride).zip(shares) {
                        *dx += share;
                    }
                }
            }
        }
    }
    for window in (first..inside.start).chain(inside.end..first + shares.len()) {
        let taps = axis.taps(window);
        let left = axis.pixel(window, taps.start);
        for dx in &mut dx[left..left + taps.len()] {
            *dx += shares[window - first];
        }
    }
}

/// Adds the shares to the pixels 0, 2, 4, ... of a row; the last one may be its last pixel.
#[inline(always)]
fn add_every_other(shares: &[f32], dx: &mut [f32]) {
    let (pairs, rest) = dx.as_chunks_mut::<2>();
    for (pair, share) in pairs.iter_mut().zip(shares) {
        pair[0] += share;
    }
    if let (Some(dx), Some(share)) = (rest.first_mut(), shares.get(pairs.len())) {
        *dx += share;
    }
}
