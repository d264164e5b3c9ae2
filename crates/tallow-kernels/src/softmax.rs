//! Softmax and its logarithm along rows, with their gradients from the output.
//!
//! A row's largest element is taken off first, so that nothing overflows. A row that holds a NaN or
//! an infinity, or nothing but negative infinities, comes out as NaN, as in PyTorch.

use crate::error::{Result, check_len, checked_product};
use crate::lanes;
use crate::math;
use crate::parallel::{for_each, grain, rows};
use crate::simd::{Isa, dispatch};

/// `y[r, c] = e^x[r, c] / sum over j of e^x[r, j]` for `x` of `[rows, cols]`.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) for a slice of another length.
pub fn softmax(shape: [usize; 2], x: &[f32], y: &mut [f32]) -> Result<()> {
    map_rows("softmax", shape, x, y, softmax_leaf)
}

/// `y[r, c] = x[r, c] - ln sum over j of e^x[r, j]` for `x` of `[rows, cols]`.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) for a slice of another length.
pub fn log_softmax(shape: [usize; 2], x: &[f32], y: &mut [f32]) -> Result<()> {
    map_rows("log_softmax", shape, x, y, log_softmax_leaf)
}

fn map_rows(
    kernel: &'static str,
    [count, width]: [usize; 2],
    x: &[f32],
    y: &mut [f32],
    leaf: impl Fn(usize, &[f32], &mut [f32]) + Sync,
) -> Result<()> {
    let len = checked_product(kernel, &[count, width])?;
    check_len(kernel, "x", x, len)?;
    check_len(kernel, "y", y, len)?;
    if len > 0 {
        for_each(
            count,
            grain(width),
            (rows(x, width), rows(y, width)),
            |_, (x, y)| {
                leaf(width, x.data, y.data);
            },
        );
    }
    Ok(())
}

/// Writes `e^(x - max)` of a row to `y`; gives the largest element and the sum.
#[inline(always)]
pub(crate) fn exponentials<I: Isa>(x: &[f32], y: &mut [f32]) -> (f32, f64) {
    let largest = lanes::max::<I>(x);
    for (y, &x) in y.iter_mut().zip(x) {
        *y = math::exp::<I>(x - largest);
    }
    (largest, lanes::sum::<I>(y))
}

dispatch! {
    fn softmax_leaf<I>(width: usize, x: &[f32], y: &mut [f32]) {
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            let (_, sum) = exponentials::<I>(x, y);
            let factor = (1.0 / sum) as f32;
            for y in y {
                *y *= factor;
            }
        }
    }
}

dispatch! {
    fn log_softmax_leaf<I>(width: usize, x: &[f32], y: &mut [f32]) {
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            let (largest, sum) = exponentials::<I>(x, y);
            let log_sum = math::ln_f64(sum) as f32;
            for (y, &x) in y.iter_mut().zip(x) {
                *y = (x - largest) - log_sum;
            }
        }
    }
}

/// Gradient of [`softmax`] from its output `y`: `dx = y (dy - sum over the row of dy y)`.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) for a slice of another length.
pub fn softmax_backward(shape: [usize; 2], y: &[f32], dy: &[f32], dx: &mut [f32]) -> Result<()> {
    map_rows2("softmax_backward", shape, y, dy, dx, softmax_backward_leaf)
}

/// Gradient of [`log_softmax`] from its output `y`: `dx = dy - e^y sum over the row of dy`.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) for a slice of another length.
pub fn log_softmax_backward(
    shape: [usize; 2],
    y: &[f32],
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    map_rows2(
        "log_softmax_backward",
        shape,
        y,
        dy,
        dx,
        log_softmax_backward_leaf,
    )
}

fn map_rows2(
    kernel: &'static str,
    [count, width]: [usize; 2],
    y: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    leaf: impl Fn(usize, &[f32], &[f32], &mut [f32]) + Sync,
) -> Result<()> {
    let len = checked_product(kernel, &[count, width])?;
    check_len(kernel, "y", y, len)?;
    check_len(kernel, "dy", dy, len)?;
    check_len(kernel, "dx", dx, len)?;
    if len > 0 {
        let data = (rows(y, width), rows(dy, width), rows(dx, width));
        for_each(count, grain(width), data, |_, (y, dy, dx)| {
            leaf(width, y.data, dy.data, dx.data);
        });
    }
    Ok(())
}

dispatch! {
    fn softmax_backward_leaf<I>(width: usize, y: &[f32], dy: &[f32], dx: &mut [f32]) {
        let rows = y.chunks_exact(width).zip(dy.chunks_exact(width));
        for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(width)) {
            let mean = lanes::dot::<I>(y, dy) as f32;
            for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
                *dx = y * (dy - mean);
            }
        }
    }
}

dispatch! {
    fn log_softmax_backward_leaf<I>(width: usize, y: &[f32], dy: &[f32], dx: &mut [f32]) {
        let rows = y.chunks_exact(width).zip(dy.chunks_exact(width));
        for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(width)) {
            let sum = lanes::sum::<I>(dy) as f32;
            for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
                *dx = I::fma(-math::exp::<I>(y), sum, dy);
            }
        }
    }
}
