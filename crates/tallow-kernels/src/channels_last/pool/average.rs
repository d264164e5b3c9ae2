//! Average over windows.

use std::ops::Range;

use super::windows::{Axis, Windows};
use crate::error::Result;
use crate::parallel::{Rows, for_each, rows};
use crate::pool::{AdaptivePool2dGeometry, Pool2dGeometry, check_average_geometry, counted};
use crate::simd::dispatch;

/// `y` = the average of each window of `x` of `[N, H, W, C]`, PyTorch's `avg_pool2d`.
///
/// The sum of a window's pixels is divided by their number, to which pixels of the padding count if
/// `count_include_pad`; what `ceil_mode` adds beyond the padding never counts.
///
/// # Errors
/// [`Error::Geometry`](crate::Error::Geometry) as in [`Pool2dGeometry::new`], for a dilation other than 1, and where
/// planes aren't whole images of `channels`; [`Error::Length`](crate::Error::Length) for a slice of another length.
pub fn avg_pool2d(
    geometry: &Pool2dGeometry,
    channels: usize,
    count_include_pad: bool,
    x: &[f32],
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "avg_pool2d";
    check_average_geometry(KERNEL, geometry)?;
    let windows = Windows::of(KERNEL, geometry, channels)?;
    forward(KERNEL, &windows, count_include_pad, x, y)
}

/// Gradient of [`avg_pool2d`]: each pixel of `dx` of `[N, H, W, C]` gets its share of the `dy` of the windows that it
/// lies in.
///
/// # Errors
/// As [`avg_pool2d`].
pub fn avg_pool2d_backward(
    geometry: &Pool2dGeometry,
    channels: usize,
    count_include_pad: bool,
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "avg_pool2d_backward";
    check_average_geometry(KERNEL, geometry)?;
    let windows = Windows::of(KERNEL, geometry, channels)?;
    backward(KERNEL, &windows, count_include_pad, dy, dx)
}

/// `y` = the average of each bin of `x` of `[N, H, W, C]`, PyTorch's `adaptive_avg_pool2d`, summed in `f64`. With an
/// output of 1 by 1 it is the global average.
///
/// # Errors
/// [`Error::Geometry`](crate::Error::Geometry) where a size is zero or planes aren't whole images of `channels`;
/// [`Error::Length`](crate::Error::Length) for a slice of another length.
pub fn adaptive_avg_pool2d(
    geometry: &AdaptivePool2dGeometry,
    channels: usize,
    x: &[f32],
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "adaptive_avg_pool2d";
    let windows = Windows::of_bins(KERNEL, geometry, channels)?;
    forward(KERNEL, &windows, false, x, y)
}

/// Gradient of [`adaptive_avg_pool2d`]: each pixel of `dx` of `[N, H, W, C]` gets its share of the `dy` of the bins
/// that it lies in.
///
/// # Errors
/// As [`adaptive_avg_pool2d`].
pub fn adaptive_avg_pool2d_backward(
    geometry: &AdaptivePool2dGeometry,
    channels: usize,
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "adaptive_avg_pool2d_backward";
    let windows = Windows::of_bins(KERNEL, geometry, channels)?;
    backward(KERNEL, &windows, false, dy, dx)
}

/// Pixels along one axis that a window is divided by.
#[inline(always)]
fn divisor(axis: &Axis, window: usize, count_include_pad: bool) -> usize {
    match axis {
        Axis::Windows(axis) => counted(axis, window, count_include_pad),
        Axis::Bins { .. } => axis.taps(window).len(),
    }
}

fn forward(
    kernel: &'static str,
    windows: &Windows,
    count_include_pad: bool,
    x: &[f32],
    y: &mut [f32],
) -> Result<()> {
    windows.check_input(kernel, "x", x)?;
    windows.check_output(kernel, "y", y)?;
    let [height, width] = windows.out_size;
    let count = windows.batch * height;
    let y = rows(y, width * windows.channels);
    for_each(count, windows.grain(count), y, |first, y| {
        forward_leaf(windows, count_include_pad, first, x, y);
    });
    Ok(())
}

dispatch! {
    /// Rows of the output, from the one numbered `first` among all images' on.
    fn forward_leaf<I>(
        windows: &Windows, count_include_pad: bool, first: usize, x: &[f32], y: Rows<&mut [f32]>
    ) {
        let [in_height, in_width] = windows.in_size;
        let out_height = windows.out_size[0];
        let channels = windows.channels;
        let [down, across] = &windows.axes;
        for (i, y) in y.data.chunks_exact_mut(y.width).enumerate() {
            let (image, row) = ((first + i) / out_height, (first + i) % out_height);
            let height = divisor(down, row, count_include_pad);
            let row_taps = down.taps(row);
            let rows = image * in_height + down.pixel(row, row_taps.start)..;
            let rows = rows.start..rows.start + row_taps.len();
            for (column, y) in y.chunks_exact_mut(channels).enumerate() {
                let taps = across.taps(column);
                let start = across.pixel(column, taps.start);
                let pixels = Pixels { rows: rows.clone(), columns: start..start + taps.len(), in_width };
                let count = height * divisor(across, column, count_include_pad);
                match down {
                    Axis::Windows(_) => single_average(pixels, x, count, y),
                    Axis::Bins { .. } => double_average(pixels, x, count, y),
                }
            }
        }
    }
}

/// The pixels of a window; rows are numbered through all images.
struct Pixels {
    rows: Range<usize>,
    columns: Range<usize>,
    in_width: usize,
}

/// For windows of a few pixels.
#[inline(always)]
fn single_average(pixels: Pixels, x: &[f32], count: usize, y: &mut [f32]) {
    let channels = y.len();
    y.fill(0.0);
    for row in pixels.rows {
        for column in pixels.columns.clone() {
            let x = &x[(row * pixels.in_width + column) * channels..][..channels];
            for (y, x) in y.iter_mut().zip(x) {
                *y += x;
            }
        }
    }
    let count = count as f32;
    for y in y {
        *y /= count;
    }
}

/// Channels that are summed side by side.
const PART: usize = 128;

/// For bins of any number of pixels.
#[inline(always)]
fn double_average(pixels: Pixels, x: &[f32], count: usize, y: &mut [f32]) {
    let channels = y.len();
    for (part, y) in y.chunks_mut(PART).enumerate() {
        let mut sums = [0.0f64; PART];
        for row in pixels.rows.clone() {
            for column in pixels.columns.clone() {
                let at = (row * pixels.in_width + column) * channels + part * PART;
                for (sum, &x) in sums.iter_mut().zip(&x[at..][..y.len()]) {
                    *sum += f64::from(x);
                }
            }
        }
        for (y, sum) in y.iter_mut().zip(sums) {
            *y = (sum / count as f64) as f32;
        }
    }
}

fn backward(
    kernel: &'static str,
    windows: &Windows,
    count_include_pad: bool,
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    windows.check_output(kernel, "dy", dy)?;
    windows.check_input(kernel, "dx", dx)?;
    let [height, width] = windows.in_size;
    let count = windows.batch * height;
    let dx = rows(dx, width * windows.channels);
    for_each(count, windows.grain(count), dx, |first, dx| {
        backward_leaf(windows, count_include_pad, first, dy, dx);
    });
    Ok(())
}

dispatch! {
    /// Rows of the input, from the one numbered `first` among all images' on.
    fn backward_leaf<I>(
        windows: &Windows, count_include_pad: bool, first: usize, dy: &[f32], dx: Rows<&mut [f32]>
    ) {
        let in_height = windows.in_size[0];
        let [out_height, out_width] = windows.out_size;
        let channels = windows.channels;
        let [down, across] = &windows.axes;
        for (i, dx) in dx.data.chunks_exact_mut(dx.width).enumerate() {
            let (image, row) = ((first + i) / in_height, (first + i) % in_height);
            let window_rows = down.windows(row);
            for (column, dx) in dx.chunks_exact_mut(channels).enumerate() {
                let window_columns = across.windows(column);
                let mut written = false;
                for window_row in window_rows.clone() {
                    let height = divisor(down, window_row, count_include_pad);
                    for window_column in window_columns.clone() {
                        let count = height * divisor(across, window_column, count_include_pad);
                        let at = (image * out_height + window_row) * out_width + window_column;
                        let dy = &dy[at * channels..][..channels];
                        share(dy, count, written, dx);
                        written = true;
                    }
                }
                if !written {
                    dx.fill(0.0);
                }
            }
        }
    }
}

/// `dx = dy / count`, or `+=` where something is `written`.
#[inline(always)]
fn share(dy: &[f32], count: usize, written: bool, dx: &mut [f32]) {
    // Divisions are slow; by a power of two they are products, to the bit.
    match (count.is_power_of_two(), written) {
        (true, false) => store_shares(dy, |dy| dy * (1.0 / count as f32), dx),
        (true, true) => add_shares(dy, |dy| dy * (1.0 / count as f32), dx),
        (false, false) => store_shares(dy, |dy| dy / count as f32, dx),
        (false, true) => add_shares(dy, |dy| dy / count as f32, dx),
    }
}

#[inline(always)]
fn store_shares(dy: &[f32], share: impl Fn(f32) -> f32, dx: &mut [f32]) {
    for (dx, &dy) in dx.iter_mut().zip(dy) {
        *dx = share(dy);
    }
}

#[inline(always)]
fn add_shares(dy: &[f32], share: impl Fn(f32) -> f32, dx: &mut [f32]) {
    for (dx, &dy) in dx.iter_mut().zip(dy) {
        *dx += share(dy);
    }
}
