//! Average over windows, PyTorch's `avg_pool2d`.

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

fn check_geometry(kernel: &'static str, geometry: &Pool2dGeometry) -> Result<()> {
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
fn counted(axis: &Axis, window: usize, count_include_pad: bool) -> usize {
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
                    let start = vertical.pixel(row, tap) * horizontal.input;
                    add_input_row(horizontal, &x[start..start + horizontal.input], y);
                }
                let height = counted(vertical, row, count_include_pad);
                for (window, y) in y.iter_mut().enumerate() {
                    *y /= (height * counted(horizontal, window, count_include_pad)) as f32;
                }
            }
        }
    }
}

/// Adds to each window of a row what it sees of one input row.
#[inline(always)]
fn add_input_row(axis: &Axis, x: &[f32], y: &mut [f32]) {
    for tap in 0..axis.kernel {
        let windows = axis.windows(tap);
        if windows.is_empty() {
            continue;
        }
        let x = &x[axis.pixel(windows.start, tap)..];
        match axis.stride {
            1 => y[windows].iter_mut().zip(x).for_each(|(y, x)| *y += x),
            stride => {
                for (y, x) in y[windows].iter_mut().zip(x.iter().step_by(stride)) {
                    *y += x;
                }
            }
        }
    }
}

dispatch! {
    fn backward_leaf<I>(axes: &[Axis; 2], count_include_pad: bool, dy: &[f32], dx: &mut [f32]) {
        let [vertical, horizontal] = axes;
        dx.fill(0.0);
        let planes = dx.chunks_exact_mut(vertical.input * horizontal.input);
        for (dx, dy) in planes.zip(dy.chunks_exact(vertical.output * horizontal.output)) {
            for (row, dy) in dy.chunks_exact(horizontal.output).enumerate() {
                let height = counted(vertical, row, count_include_pad);
                for (window, dy) in dy.iter().enumerate() {
                    let width = counted(horizontal, window, count_include_pad);
                    let share = dy / (height * width) as f32;
                    let across = horizontal.taps(window);
                    let left = horizontal.pixel(window, across.start);
                    for tap in vertical.taps(row) {
                        let start = vertical.pixel(row, tap) * horizontal.input + left;
                        for dx in &mut dx[start..start + across.len()] {
                            *dx += share;
                        }
                    }
                }
            }
        }
    }
}
