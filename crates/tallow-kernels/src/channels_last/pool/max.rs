//! Maximum over windows.

use super::windows::Windows;
use crate::error::{Error, Result};
use crate::parallel::{Rows, for_each, rows};
use crate::pool::{AdaptivePool2dGeometry, Pool2dGeometry};
use crate::simd::dispatch;

/// A type that positions of maxima are kept in: `u8`, the smallest, or `f32`, for those whose memory is all floats.
///
/// A position is the number of a tap in its window, counted row by row over all taps, those in the padding too.
pub trait Position: kept::Kept {}

impl Position for u8 {}
impl Position for f32 {}

mod kept {
    /// What the kernels do with a position.
    pub trait Kept: Copy + Send + Sync + PartialEq {
        /// Taps that can be told apart.
        const MOST: usize;
        #[doc(hidden)]
        fn of(tap: u32) -> Self;
    }

    impl Kept for u8 {
        const MOST: usize = 1 << 8;

        #[inline(always)]
        fn of(tap: u32) -> Self {
            tap as Self
        }
    }

    impl Kept for f32 {
        const MOST: usize = 1 << 24;

        #[inline(always)]
        fn of(tap: u32) -> Self {
            tap as Self
        }
    }

    /// Positions that nobody keeps.
    impl Kept for () {
        const MOST: usize = usize::MAX;

        #[inline(always)]
        fn of(_tap: u32) -> Self {}
    }
}

use kept::Kept;

/// `y` = the maximum of each window of `x` of `[N, H, W, C]`, PyTorch's `max_pool2d`; padding counts as `-inf`, and a
/// window with a NaN gives NaN.
///
/// # Errors
/// [`Error::Geometry`] as in [`Pool2dGeometry::new`], and where its planes aren't whole images of `channels`;
/// [`Error::Length`] for a slice of another length.
pub fn max_pool2d(
    geometry: &Pool2dGeometry,
    channels: usize,
    x: &[f32],
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "max_pool2d";
    let windows = Windows::of(KERNEL, geometry, channels)?;
    forward(KERNEL, &windows, x, y, &mut nowhere(y.len()))
}

/// [`max_pool2d`] that also keeps, in the shape of `y`, at which tap of its window each maximum lies: at the first of
/// equal ones, or the last NaN.
///
/// # Errors
/// As [`max_pool2d`], and [`Error::Geometry`] where `P` can't count a window's taps.
pub fn max_pool2d_positions<P: Position>(
    geometry: &Pool2dGeometry,
    channels: usize,
    x: &[f32],
    y: &mut [f32],
    positions: &mut [P],
) -> Result<()> {
    const KERNEL: &str = "max_pool2d_positions";
    let windows = Windows::of(KERNEL, geometry, channels)?;
    forward(KERNEL, &windows, x, y, positions)
}

/// Gradient of [`max_pool2d`]: each pixel of `dx` of `[N, H, W, C]` gets the `dy` of the windows whose maximum it is.
///
/// # Errors
/// As [`max_pool2d`]. Positions that aren't those of [`max_pool2d_positions`] give a wrong gradient.
pub fn max_pool2d_backward<P: Position>(
    geometry: &Pool2dGeometry,
    channels: usize,
    positions: &[P],
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "max_pool2d_backward";
    let windows = Windows::of(KERNEL, geometry, channels)?;
    backward(KERNEL, &windows, positions, dy, dx)
}

/// `y` = the maximum of each bin of `x` of `[N, H, W, C]`, PyTorch's `adaptive_max_pool2d`; NaN as in [`max_pool2d`].
///
/// # Errors
/// [`Error::Geometry`] where a size is zero or planes aren't whole images of `channels`; [`Error::Length`] for a slice
/// of another length.
pub fn adaptive_max_pool2d(
    geometry: &AdaptivePool2dGeometry,
    channels: usize,
    x: &[f32],
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "adaptive_max_pool2d";
    let windows = Windows::of_bins(KERNEL, geometry, channels)?;
    forward(KERNEL, &windows, x, y, &mut nowhere(y.len()))
}

/// [`adaptive_max_pool2d`] that also keeps where in its bin each maximum lies, as [`max_pool2d_positions`].
///
/// # Errors
/// As [`adaptive_max_pool2d`], and [`Error::Geometry`] where `P` can't count a bin's pixels.
pub fn adaptive_max_pool2d_positions<P: Position>(
    geometry: &AdaptivePool2dGeometry,
    channels: usize,
    x: &[f32],
    y: &mut [f32],
    positions: &mut [P],
) -> Result<()> {
    const KERNEL: &str = "adaptive_max_pool2d_positions";
    let windows = Windows::of_bins(KERNEL, geometry, channels)?;
    forward(KERNEL, &windows, x, y, positions)
}

/// Gradient of [`adaptive_max_pool2d`], as [`max_pool2d_backward`].
///
/// # Errors
/// As [`adaptive_max_pool2d`].
pub fn adaptive_max_pool2d_backward<P: Position>(
    geometry: &AdaptivePool2dGeometry,
    channels: usize,
    positions: &[P],
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "adaptive_max_pool2d_backward";
    let windows = Windows::of_bins(KERNEL, geometry, channels)?;
    backward(KERNEL, &windows, positions, dy, dx)
}

/// Room for positions that nobody keeps, which takes no memory.
fn nowhere(len: usize) -> Vec<()> {
    vec![(); len]
}

fn check_positions<P: Kept>(kernel: &'static str, windows: &Windows) -> Result<()> {
    let [height, width] = windows.kernel();
    if height
        .checked_mul(width)
        .is_some_and(|taps| taps <= P::MOST)
    {
        return Ok(());
    }
    let problem = format!(
        "windows of {height} by {width} have more taps than the {} that positions of this type \
         can count; use `f32`",
        P::MOST
    );
    Err(Error::Geometry { kernel, problem })
}

fn forward<P: Kept>(
    kernel: &'static str,
    windows: &Windows,
    x: &[f32],
    y: &mut [f32],
    positions: &mut [P],
) -> Result<()> {
    check_positions::<P>(kernel, windows)?;
    windows.check_input(kernel, "x", x)?;
    windows.check_output(kernel, "y", y)?;
    windows.check_output(kernel, "positions", positions)?;
    let [height, width] = windows.out_size();
    let (count, width) = (windows.batch * height, width * windows.channels);
    let data = (rows(y, width), rows(positions, width));
    for_each(
        count,
        windows.grain(count),
        data,
        |first, (y, positions)| {
            forward_leaf(windows, first, x, y, positions);
        },
    );
    Ok(())
}

dispatch! {
    /// Rows of the output, from the one numbered `first` among all images' on.
    fn forward_leaf<I, P: Kept>(
        windows: &Windows, first: usize, x: &[f32], y: Rows<&mut [f32]>, positions: Rows<&mut [P]>
    ) {
        let [in_height, in_width] = windows.in_size();
        let out_height = windows.out_size()[0];
        let channels = windows.channels;
        let [down, across] = windows.axes;
        let [kernel_height, kernel_width] = windows.kernel();
        let y_rows = y.data.chunks_exact_mut(y.width);
        let position_rows = positions.data.chunks_exact_mut(positions.width);
        for (i, (y, positions)) in y_rows.zip(position_rows).enumerate() {
            let (image, row) = ((first + i) / out_height, (first + i) % out_height);
            let row_taps = down.taps(row);
            let pixels = y.chunks_exact_mut(channels).zip(positions.chunks_exact_mut(channels));
            for (column, (y, positions)) in pixels.enumerate() {
                let column_taps = across.taps(column);
                let at = |row_tap: usize, column_tap: usize| {
                    let row = image * in_height + down.pixel(row, row_tap);
                    &x[(row * in_width + across.pixel(column, column_tap)) * channels..][..channels]
                };
                match [row_taps.len(), column_taps.len(), kernel_height, kernel_width] {
                    [2, 2, 2, 2] => {
                        let taps = [at(0, 0), at(0, 1), at(1, 0), at(1, 1)];
                        whole_window(taps, y, positions);
                    }
                    [3, 3, 3, 3] => {
                        let taps = [
                            at(0, 0), at(0, 1), at(0, 2),
                            at(1, 0), at(1, 1), at(1, 2),
                            at(2, 0), at(2, 1), at(2, 2),
                        ];
                        whole_window(taps, y, positions);
                    }
                    _ => {
                        for start in (0..channels).step_by(PART) {
                            let end = channels.min(start + PART);
                            let mut best = Best::new(row_taps.start * kernel_width + column_taps.start);
                            for row_tap in row_taps.clone() {
                                for column_tap in column_taps.clone() {
                                    let tap = row_tap * kernel_width + column_tap;
                                    best.take(tap as u32, &at(row_tap, column_tap)[start..end]);
                                }
                            }
                            best.store(&mut y[start..end], &mut positions[start..end]);
                        }
                    }
                }
            }
        }
    }
}

/// A window whose taps all lie in the input.
#[inline(always)]
fn whole_window<P: Kept, const TAPS: usize>(
    taps: [&[f32]; TAPS],
    y: &mut [f32],
    positions: &mut [P],
) {
    let len = y.len();
    let (taps, positions) = (taps.map(|tap| &tap[..len]), &mut positions[..len]);
    for c in 0..len {
        let (mut largest, mut position) = (f32::NEG_INFINITY, 0);
        for (tap, x) in taps.iter().enumerate() {
            take(x[c], tap as u32, &mut largest, &mut position);
        }
        (y[c], positions[c]) = (largest, P::of(position));
    }
}

/// Takes a tap where it is larger than what a window has, or NaN.
#[inline(always)]
fn take(x: f32, tap: u32, largest: &mut f32, position: &mut u32) {
    // Not short-circuited, so that the loop vectorises.
    let takes = (x > *largest) | x.is_nan();
    *largest = if takes { x } else { *largest };
    *position = if takes { tap } else { *position };
}

/// Channels of a window that are searched side by side.
const PART: usize = 128;

/// The maxima of a window so far, and where they lie.
struct Best {
    largest: [f32; PART],
    position: [u32; PART],
}

impl Best {
    #[inline(always)]
    fn new(first_tap: usize) -> Self {
        Self {
            largest: [f32::NEG_INFINITY; PART],
            position: [first_tap as u32; PART],
        }
    }

    #[inline(always)]
    fn take(&mut self, tap: u32, x: &[f32]) {
        let largest = &mut self.largest[..x.len()];
        let position = &mut self.position[..x.len()];
        for c in 0..x.len() {
            take(x[c], tap, &mut largest[c], &mut position[c]);
        }
    }

    #[inline(always)]
    fn store<P: Kept>(&self, y: &mut [f32], positions: &mut [P]) {
        y.copy_from_slice(&self.largest[..y.len()]);
        for (to, &position) in positions.iter_mut().zip(&self.position) {
            *to = P::of(position);
        }
    }
}

fn backward<P: Kept>(
    kernel: &'static str,
    windows: &Windows,
    positions: &[P],
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    check_positions::<P>(kernel, windows)?;
    windows.check_output(kernel, "positions", positions)?;
    windows.check_output(kernel, "dy", dy)?;
    windows.check_input(kernel, "dx", dx)?;
    let [height, width] = windows.in_size();
    let count = windows.batch * height;
    let dx = rows(dx, width * windows.channels);
    for_each(count, windows.grain(count), dx, |first, dx| {
        backward_leaf(windows, first, positions, dy, dx);
    });
    Ok(())
}

dispatch! {
    /// Rows of the input, from the one numbered `first` among all images' on.
    fn backward_leaf<I, P: Kept>(
        windows: &Windows, first: usize, positions: &[P], dy: &[f32], dx: Rows<&mut [f32]>
    ) {
        let in_height = windows.in_size()[0];
        let [out_height, out_width] = windows.out_size();
        let channels = windows.channels;
        let [down, across] = windows.axes;
        let kernel_width = windows.kernel()[1];
        for (i, dx) in dx.data.chunks_exact_mut(dx.width).enumerate() {
            let (image, row) = ((first + i) / in_height, (first + i) % in_height);
            for (column, dx) in dx.chunks_exact_mut(channels).enumerate() {
                let mut written = false;
                for window_row in down.windows(row) {
                    let Some(row_tap) = down.tap(window_row, row) else { continue };
                    for window_column in across.windows(column) {
                        let Some(column_tap) = across.tap(window_column, column) else { continue };
                        let at = (image * out_height + window_row) * out_width + window_column;
                        let at = at * channels..(at + 1) * channels;
                        let tap = P::of((row_tap * kernel_width + column_tap) as u32);
                        let (positions, dy) = (&positions[at.clone()], &dy[at]);
                        if written {
                            add_where(tap, positions, dy, dx);
                        } else {
                            store_where(tap, positions, dy, dx);
                        }
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

#[inline(always)]
fn store_where<P: Kept>(tap: P, positions: &[P], dy: &[f32], dx: &mut [f32]) {
    for ((dx, &position), &dy) in dx.iter_mut().zip(positions).zip(dy) {
        *dx = if position == tap { dy } else { 0.0 };
    }
}

#[inline(always)]
fn add_where<P: Kept>(tap: P, positions: &[P], dy: &[f32], dx: &mut [f32]) {
    for ((dx, &position), &dy) in dx.iter_mut().zip(positions).zip(dy) {
        *dx += if position == tap { dy } else { 0.0 };
    }
}
