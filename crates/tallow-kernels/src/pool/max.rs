//! Maximum over windows, PyTorch's `max_pool2d`.

use std::ops::Range;

use super::{Axis, Pool2dGeometry};
use crate::error::{Error, Result, check_len};
use crate::parallel::{for_each, grain, reduce, rows};
use crate::simd::dispatch;

/// `y` = the maximum of each window of `x` of `[planes, H, W]`; padding counts as `-inf`.
///
/// `indices`, of the shape of `y`, gets where in its plane (`row W + column`) the maximum lies: the
/// first one of equal ones. A window with a NaN gives NaN (and the index of its last NaN).
///
/// # Errors
/// [`Error::Geometry`] as in [`Pool2dGeometry::new`], or where a plane has more pixels than an
/// index can count; [`Error::Length`] for a slice of another length.
pub fn max_pool2d(
    geometry: &Pool2dGeometry,
    x: &[f32],
    y: &mut [f32],
    indices: &mut [u32],
) -> Result<()> {
    const KERNEL: &str = "max_pool2d";
    geometry.check()?;
    let [in_len, out_len] = geometry.plane_lens();
    check_countable(KERNEL, geometry.in_size)?;
    check_len(KERNEL, "x", x, geometry.planes * in_len)?;
    check_len(KERNEL, "y", y, geometry.planes * out_len)?;
    check_len(KERNEL, "indices", indices, geometry.planes * out_len)?;
    let axes = geometry.axes();
    let data = (rows(x, in_len), rows(y, out_len), rows(indices, out_len));
    for_each(
        geometry.planes,
        grain(in_len + 2 * out_len),
        data,
        |_, (x, y, indices)| {
            leaf(&axes, x.data, y.data, indices.data);
        },
    );
    Ok(())
}

/// Fails unless a `u32` can count the pixels of a plane.
pub(super) fn check_countable(kernel: &'static str, [height, width]: [usize; 2]) -> Result<()> {
    if u32::try_from(height * width).is_ok() {
        return Ok(());
    }
    let problem = format!("planes of {height} by {width} have more pixels than 32 bits can count");
    Err(Error::Geometry { kernel, problem })
}

dispatch! {
    fn leaf<I>(axes: &[Axis; 2], x: &[f32], y: &mut [f32], indices: &mut [u32]) {
        let [vertical, horizontal] = axes;
        let out_len = vertical.output * horizontal.output;
        let planes = x.chunks_exact(vertical.input * horizontal.input);
        let outputs = y.chunks_exact_mut(out_len).zip(indices.chunks_exact_mut(out_len));
        for (x, (y, indices)) in planes.zip(outputs) {
            let y_rows = y.chunks_exact_mut(horizontal.output);
            let index_rows = indices.chunks_exact_mut(horizontal.output);
            for (row, (y, indices)) in y_rows.zip(index_rows).enumerate() {
                output_row(axes, row, x, y, indices);
            }
        }
    }
}

/// One row of windows of a plane.
#[inline(always)]
fn output_row(axes: &[Axis; 2], row: usize, x: &[f32], y: &mut [f32], indices: &mut [u32]) {
    let [vertical, horizontal] = axes;
    let taps = vertical.taps(row);
    let first_row = vertical.pixel(row, taps.start) * horizontal.input;
    y.fill(f32::NEG_INFINITY);
    for (window, index) in indices.iter_mut().enumerate() {
        let start = window * horizontal.stride;
        // Only the first windows begin in the padding; a division for each would be slow.
        let tap = if start < horizontal.padding {
            horizontal.taps(window).start
        } else {
            0
        };
        *index = (first_row + horizontal.pixel(window, tap)) as u32;
    }
    for tap in taps {
        let start = vertical.pixel(row, tap) * horizontal.input;
        // Windows that lie wholly in the input, where there is a loop for their size.
        let done = match (horizontal.stride, horizontal.kernel, horizontal.dilation) {
            (1, 2, 1) => interior::<1, 2>(horizontal, x, start, y, indices),
            (1, 3, 1) => interior::<1, 3>(horizontal, x, start, y, indices),
            (2, 2, 1) => interior::<2, 2>(horizontal, x, start, y, indices),
            (2, 3, 1) => interior::<2, 3>(horizontal, x, start, y, indices),
            _ => 0..0,
        };
        for window in (0..done.start).chain(done.end..horizontal.output) {
            for tap in horizontal.taps(window) {
                let at = start + horizontal.pixel(window, tap);
                take(x[at], at as u32, &mut y[window], &mut indices[window]);
            }
        }
    }
}

/// Takes what the windows that lie wholly in the input see of the input row that begins at pixel
/// `start` of the plane; gives the windows that were done.
#[inline(always)]
fn interior<const STRIDE: usize, const TAPS: usize>(
    axis: &Axis,
    x: &[f32],
    start: usize,
    y: &mut [f32],
    indices: &mut [u32],
) -> Range<usize> {
    let (windows, taps) = axis.interior_taps::<STRIDE, TAPS>(&x[start..]);
    let mut at = (start + windows.start * STRIDE).wrapping_sub(axis.padding) as u32;
    let count = windows.len();
    let (y, indices) = (
        &mut y[windows.clone()][..count],
        &mut indices[windows.clone()][..count],
    );
    for i in 0..count {
        let (mut largest, mut index) = (y[i], indices[i]);
        for (tap, x) in taps.iter().enumerate() {
            take(x[i][0], at + tap as u32, &mut largest, &mut index);
        }
        (y[i], indices[i]) = (largest, index);
        at += STRIDE as u32;
    }
    windows
}

/// Takes pixel `at` where it is larger than what a window has, or NaN.
#[inline(always)]
fn take(x: f32, at: u32, y: &mut f32, index: &mut u32) {
    // Not short-circuited, so that the loop vectorises.
    let takes = (x > *y) | x.is_nan();
    *y = if takes { x } else { *y };
    *index = if takes { at } else { *index };
}

/// Gradient of [`max_pool2d`]: `dx` of `[planes, H, W]` gets each window's `dy` where `indices` say
/// that its maximum lies; windows that share a maximum add up.
///
/// # Errors
/// As [`max_pool2d`], and [`Error::Index`] for an index outside its plane; `dx` is then not to be
/// used.
pub fn max_pool2d_backward(
    geometry: &Pool2dGeometry,
    indices: &[u32],
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    geometry.check()?;
    scatter(
        "max_pool2d_backward",
        geometry.planes,
        geometry.plane_lens(),
        indices,
        dy,
        dx,
    )
}

/// Adds each element of `dy` to the pixel of its plane that its index names.
pub(super) fn scatter(
    kernel: &'static str,
    planes: usize,
    [in_len, out_len]: [usize; 2],
    indices: &[u32],
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    check_len(kernel, "indices", indices, planes * out_len)?;
    check_len(kernel, "dy", dy, planes * out_len)?;
    check_len(kernel, "dx", dx, planes * in_len)?;
    let data = (rows(indices, out_len), rows(dy, out_len), rows(dx, in_len));
    let grain = grain(in_len + 2 * out_len);
    let wrong = reduce(
        planes,
        grain,
        data,
        |first, (indices, dy, dx)| {
            let mut wrong = None;
            let inputs = indices
                .data
                .chunks_exact(out_len)
                .zip(dy.data.chunks_exact(out_len));
            for (plane, ((indices, dy), dx)) in
                inputs.zip(dx.data.chunks_exact_mut(in_len)).enumerate()
            {
                dx.fill(0.0);
                for (i, (&index, &dy)) in indices.iter().zip(dy).enumerate() {
                    match dx.get_mut(index as usize) {
                        Some(dx) => *dx += dy,
                        None => wrong = wrong.or(Some(((first + plane) * out_len + i, index))),
                    }
                }
            }
            wrong
        },
        Option::or,
    );
    match wrong.flatten() {
        None => Ok(()),
        Some((row, index)) => Err(Error::Index {
            kernel,
            row,
            value: index.into(),
            bound: in_len,
        }),
    }
}
