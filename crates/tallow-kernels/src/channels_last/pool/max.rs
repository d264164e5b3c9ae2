//! Maximum over windows.

use std::ops::Range;

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
    let [height, width] = windows.kernel;
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
    let [height, width] = windows.out_size;
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
        let [out_height, out_width] = windows.out_size;
        let channels = windows.channels;
        let y_rows = y.data.chunks_exact_mut(out_width * channels);
        let position_rows = positions.data.chunks_exact_mut(out_width * channels);
        for (i, (y, positions)) in y_rows.zip(position_rows).enumerate() {
            let (image, row) = ((first + i) / out_height, (first + i) % out_height);
            let pixels = y.chunks_exact_mut(channels).zip(positions.chunks_exact_mut(channels));
            for (column, (y, positions)) in pixels.enumerate() {
                let window = Window::new(windows, image, [row, column]);
                match windows.kernel {
                    [2, 2] => small_window::<P, 4>(&window, x, y, positions),
                    [3, 3] => small_window::<P, 9>(&window, x, y, positions),
                    _ => any_window(&window, x, y, positions),
                }
            }
        }
    }
}

/// One window of one image.
struct Window<'a> {
    windows: &'a Windows,
    image: usize,
    at: [usize; 2],
    /// Those that lie in the input.
    row_taps: Range<usize>,
    column_taps: Range<usize>,
}

impl<'a> Window<'a> {
    #[inline(always)]
    fn new(windows: &'a Windows, image: usize, at: [usize; 2]) -> Self {
        let [down, across] = &windows.axes;
        Self {
            windows,
            image,
            at,
            row_taps: down.taps(at[0]),
            column_taps: across.taps(at[1]),
        }
    }

    /// The number that is kept for a tap.
    #[inline(always)]
    fn number(&self, row_tap: usize, column_tap: usize) -> usize {
        row_tap * self.windows.kernel[1] + column_tap
    }

    #[inline(always)]
    fn first_number(&self) -> usize {
        self.number(self.row_taps.start, self.column_taps.start)
    }

    /// The channels of the pixel at a tap.
    #[inline(always)]
    fn pixel<'x>(&self, x: &'x [f32], row_tap: usize, column_tap: usize) -> &'x [f32] {
        let [height, width] = self.windows.in_size;
        let [down, across] = &self.windows.axes;
        let row = self.image * height + down.pixel(self.at[0], row_tap);
        let pixel = row * width + across.pixel(self.at[1], column_tap);
        &x[pixel * self.windows.channels..][..self.windows.channels]
    }
}

/// Channels of a window that are searched side by side.
const PART: usize = 128;

/// What a tap outside the input holds.
static OUTSIDE: [f32; PART] = [f32::NEG_INFINITY; PART];

/// A window of so few taps that a loop may look at all of them at once.
#[inline(always)]
fn small_window<P: Kept, const TAPS: usize>(
    window: &Window<'_>,
    x: &[f32],
    y: &mut [f32],
    positions: &mut [P],
) {
    let mut taps: [&[f32]; TAPS] = [&[]; TAPS];
    for row_tap in window.row_taps.clone() {
        for column_tap in window.column_taps.clone() {
            taps[window.number(row_tap, column_tap)] = window.pixel(x, row_tap, column_tap);
        }
    }
    let first = window.first_number() as u32;
    // Positions stay as wide as the floats that they are chosen with until they are stored.
    let mut wide = [0; PART];
    let parts = y.chunks_mut(PART).zip(positions.chunks_mut(PART));
    for (part, (y, positions)) in parts.enumerate() {
        let mut here: [&[f32]; TAPS] = [&OUTSIDE[..y.len()]; TAPS];
        for (here, tap) in here.iter_mut().zip(&taps) {
            if !tap.is_empty() {
                *here = &tap[part * PART..][..y.len()];
            }
        }
        largest_of(first, &here, y, &mut wide);
        for (to, &position) in positions.iter_mut().zip(&wide) {
            *to = P::of(position);
        }
    }
}

/// A function of its own, so that the compiler knows the slices to be apart.
#[inline(always)]
fn largest_of<const TAPS: usize>(
    first: u32,
    taps: &[&[f32]; TAPS],
    y: &mut [f32],
    positions: &mut [u32; PART],
) {
    let len = y.len();
    let positions = &mut positions[..len];
    assert!(taps.iter().all(|tap| tap.len() == len));
    for c in 0..len {
        let (mut largest, mut position) = (f32::NEG_INFINITY, first);
        for (tap, x) in taps.iter().enumerate() {
            // SAFETY: just checked. The compiler doesn't follow lengths through an array, and would leave a part of
            // each row to a scalar loop.
            let x = unsafe { *x.get_unchecked(c) };
            // Not short-circuited, so that the loop vectorises.
            let takes = (x > largest) | x.is_nan();
            largest = if takes { x } else { largest };
            position = if takes { tap as u32 } else { position };
        }
        (y[c], positions[c]) = (largest, position);
    }
}

/// A window of any number of taps, one after another.
#[inline(always)]
fn any_window<P: Kept>(window: &Window<'_>, x: &[f32], y: &mut [f32], positions: &mut [P]) {
    let parts = y.chunks_mut(PART).zip(positions.chunks_mut(PART));
    for (part, (y, positions)) in parts.enumerate() {
        let mut best = Best::new(window.first_number());
        for row_tap in window.row_taps.clone() {
            for column_tap in window.column_taps.clone() {
                let pixel = window.pixel(x, row_tap, column_tap);
                let tap = window.number(row_tap, column_tap) as u32;
                best.take(tap, &pixel[part * PART..][..y.len()]);
            }
        }
        best.store(y, positions);
    }
}

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
            // Chosen bit by bit: of a choice whether to store, the compiler makes stores under masks, which are slow.
            let takes = (x[c] > largest[c]) | x[c].is_nan();
            let mask = u32::from(takes).wrapping_neg();
            let bits = (x[c].to_bits() & mask) | (largest[c].to_bits() & !mask);
            largest[c] = f32::from_bits(bits);
            position[c] = (tap & mask) | (position[c] & !mask);
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
    let [height, width] = windows.in_size;
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
        let in_height = windows.in_size[0];
        let [out_height, out_width] = windows.out_size;
        let channels = windows.channels;
        let [down, across] = windows.axes;
        let kernel_width = windows.kernel[1];
        for (i, dx) in dx.data.chunks_exact_mut(dx.width).enumerate() {
            let (image, row) = ((first + i) / in_height, (first + i) % in_height);
            let window_rows = down.windows(row);
            for (column, dx) in dx.chunks_exact_mut(channels).enumerate() {
                let window_columns = across.windows(column);
                let mut written = false;
                for window_row in window_rows.clone() {
                    let Some(row_tap) = down.tap(window_row, row) else { continue };
                    for window_column in window_columns.clone() {
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
