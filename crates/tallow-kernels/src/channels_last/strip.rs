//! The innermost loop of images with few channels: as `micro::Product`, without tables of pointers.
//!
//! Such a convolution has so few terms that looking up where its rows lie would cost a quarter of its time.

#![allow(
    clippy::needless_range_loop,
    reason = "indices are those of the formula"
)]

use super::micro::{Finish, prefetch_row, store_part, store_tile};
use crate::registers::Lanes;

/// `out[i][j] = sum over t, k of a[t][i][k] * b[t * depth + k][j]` for the pixels of a row by `Micro::columns`.
///
/// Every pointer must be valid for what its field says.
pub(crate) struct Strip {
    /// Pixels of the row.
    pub(crate) pixels: usize,
    /// Rows of the kernel.
    pub(crate) taps: usize,
    /// Floats of a tap.
    pub(crate) depth: usize,
    /// The first tap of the first pixel.
    pub(crate) a: *const f32,
    /// Floats from one tap to the next.
    pub(crate) tap_step: usize,
    /// Floats from one pixel to the next.
    pub(crate) a_stride: usize,
    /// `[taps][depth][Micro::columns]`, all columns there.
    pub(crate) b: *const f32,
    /// The first pixel's columns.
    pub(crate) out: *mut f32,
    /// What is added to them, as far apart as they are, or null.
    pub(crate) residual: *const f32,
    /// Floats from one pixel of `out` to the next.
    pub(crate) out_stride: usize,
    /// Columns to write, at most `Micro::columns`.
    pub(crate) columns: usize,
    /// What else to do with the sums before they are stored; its residual isn't looked at.
    pub(crate) finish: Option<Finish>,
}

/// Rows of the next tile where `left` are left: none so low that it waits for its own sums.
#[inline(always)]
pub(super) fn tile_rows(left: usize, most: usize) -> usize {
    if left > most && left < 2 * most {
        left.div_ceil(2)
    } else {
        left.min(most)
    }
}

/// `ROWS` pixels, from pixel `first` on.
#[inline(always)]
pub(super) unsafe fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    args: &Strip,
    first: usize,
) {
    // SAFETY: the caller has the level, and the fields are valid for the pixels.
    unsafe {
        let mut out = [std::ptr::null_mut(); ROWS];
        for (i, out) in out.iter_mut().enumerate() {
            *out = args.out.add((first + i) * args.out_stride);
            prefetch_row::<L, VECTORS>(*out);
        }
        let sums = multiply::<L, ROWS, VECTORS>(args, args.a.wrapping_add(first * args.a_stride));
        let mut residual = [std::ptr::null(); ROWS];
        let finish = args.finish.map(|mut finish| {
            finish.residual = std::ptr::null();
            if !args.residual.is_null() {
                for (i, row) in residual.iter_mut().enumerate() {
                    *row = args.residual.add((first + i) * args.out_stride);
                }
                finish.residual = residual.as_ptr();
            }
            finish
        });
        if args.columns == VECTORS * L::COUNT {
            store_tile::<L, ROWS, VECTORS>(sums, &out, false, finish.as_ref());
        } else {
            store_part::<L, ROWS, VECTORS>(sums, &out, (args.columns, false, finish.as_ref()));
        }
    }
}

/// The sums of a tile, which stay in registers.
#[inline(always)]
unsafe fn multiply<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    args: &Strip,
    mut tap: *const f32,
) -> [[L::Vector; VECTORS]; ROWS] {
    let (depth, stride) = (args.depth, args.a_stride);
    let mut b = args.b;
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
        for _ in 0..args.taps {
            for k in 0..depth {
                let a = tap.add(k);
                let mut columns = [L::splat(0.0); VECTORS];
                for j in 0..VECTORS {
                    columns[j] = L::load(b.add(j * L::COUNT));
                }
                for i in 0..ROWS {
                    let value = L::splat(*a.add(i * stride));
                    for j in 0..VECTORS {
                        sums[i][j] = L::multiply_add(value, columns[j], sums[i][j]);
                    }
                }
                b = b.add(VECTORS * L::COUNT);
            }
            tap = tap.wrapping_add(args.tap_step);
        }
        sums
    }
}
