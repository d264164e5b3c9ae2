//! Transforms of weights and of their gradients, vectorised over channels.

#![allow(
    clippy::needless_range_loop,
    reason = "indices are those of the formulas"
)]

use super::tiles::{MAX_LANES, Middle, Square, Weight, WeightGradient, down};
use super::transform::{Gradient, Transform};
use crate::registers::Lanes;
use std::mem::MaybeUninit;

/// Taps of a filter.
pub(super) const TAPS: usize = 9;

/// Rows of packed weights that are made at a time.
pub(super) const PACK_ROWS: usize = 8;

/// Columns of the widest level's panel.
const MAX_COLUMNS: usize = 64;

/// Transforms filters into part of a panel.
///
/// Pointers must be valid for what their fields say.
pub(super) struct Pack {
    /// The first filter.
    pub(super) weights: *const f32,
    /// Floats from a row's filter to the next row's, and from a column's to the next column's.
    pub(super) strides: [usize; 2],
    /// At most [`PACK_ROWS`].
    pub(super) rows: usize,
    /// Columns that exist; the panel's others become zero.
    pub(super) columns: usize,
    /// Turn the filters by half a turn.
    pub(super) flip: bool,
    /// `rows` rows of a panel's columns, a point.
    pub(super) out: *mut f32,
    /// Floats from one point to the next.
    pub(super) plane: usize,
}

/// Transforms sums over tiles into gradients of filters.
///
/// Pointers must be valid for what their fields say.
pub(super) struct Unpack {
    /// A row of sums, rounded up to a register, a point.
    pub(super) sums: *const f32,
    /// Floats from one point to the next.
    pub(super) plane: usize,
    /// Filters: one beside the other, as the sums.
    pub(super) filters: usize,
    /// Room for `filters * TAPS` floats.
    pub(super) out: *mut f32,
}

/// `to[j * to_stride + i] = from[i * from_stride + j]`.
#[inline(always)]
unsafe fn transpose<L: Lanes>(
    (rows, columns): (usize, usize),
    (from, from_stride): (*const f32, usize),
    (to, to_stride): (*mut f32, usize),
) {
    let (whole_rows, whole_columns) = (rows - rows % 8, columns - columns % 8);
    // SAFETY: the caller's pointers are valid for all rows and columns.
    unsafe {
        for i in (0..whole_rows).step_by(8) {
            for j in (0..whole_columns).step_by(8) {
                let (from, to) = (from.add(i * from_stride + j), to.add(j * to_stride + i));
                L::transpose_8x8(from, from_stride, to, to_stride);
            }
        }
        for i in 0..rows {
            let first = if i < whole_rows { whole_columns } else { 0 };
            for j in first..columns {
                *to.add(j * to_stride + i) = *from.add(i * from_stride + j);
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn pack<L: Lanes, T: Transform<N>, const N: usize>(args: &Pack, panel: usize) {
    let mut taps = [const { MaybeUninit::<f32>::uninit() }; PACK_ROWS * TAPS * MAX_COLUMNS];
    let taps = taps.as_mut_ptr().cast::<f32>();
    let [row_stride, column_stride] = args.strides;
    // SAFETY: the buffer holds all taps of the rows, and each is written before it is read; the rest is as the caller
    // promises.
    unsafe {
        if args.columns < panel {
            taps.write_bytes(0, args.rows * TAPS * panel);
        }
        if row_stride == TAPS {
            let size = (args.columns, args.rows * TAPS);
            transpose::<L>(size, (args.weights, column_stride), (taps, panel));
        } else {
            for row in 0..args.rows {
                let from = (args.weights.add(row * row_stride), column_stride);
                transpose::<L>(
                    (args.columns, TAPS),
                    from,
                    (taps.add(row * TAPS * panel), panel),
                );
            }
        }
        for row in 0..args.rows {
            for column in (0..panel).step_by(L::COUNT) {
                let filter = taps.add(row * TAPS * panel + column);
                let out = args.out.add(row * panel + column);
                pack_registers::<L, T, N>((filter, panel), args.flip, (out, args.plane));
            }
        }
    }
}

/// One register of filters.
#[inline(always)]
unsafe fn pack_registers<L: Lanes, T: Transform<N>, const N: usize>(
    (filter, stride): (*const f32, usize),
    flip: bool,
    (out, plane): (*mut f32, usize),
) {
    // SAFETY: as the caller promises.
    unsafe {
        let middle = if flip {
            down!(L, Weight<T>, N, tap => L::load(filter.add((TAPS - 1 - tap) * stride)))
        } else {
            down!(L, Weight<T>, N, tap => L::load(filter.add(tap * stride)))
        };
        let points = T::SIZES.weights;
        for i in 0..points {
            let row = middle.across::<L, Weight<T>>(i);
            for j in 0..points {
                L::store(out.add((i * points + j) * plane), row[j]);
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn unpack<L: Lanes, T: Gradient<N>, const N: usize>(args: &Unpack) {
    let mut taps = [0.0f32; TAPS * MAX_LANES];
    let taps = taps.as_mut_ptr();
    // SAFETY: as the caller promises.
    unsafe {
        for first in (0..args.filters).step_by(L::COUNT) {
            let sums = args.sums.add(first);
            let middle =
                down!(L, WeightGradient<T>, N, point => L::load(sums.add(point * args.plane)));
            for i in 0..3 {
                let row = middle.across::<L, WeightGradient<T>>(i);
                for j in 0..3 {
                    L::store(taps.add((i * 3 + j) * L::COUNT), row[j]);
                }
            }
            let filters = L::COUNT.min(args.filters - first);
            let out = args.out.add(first * TAPS);
            transpose::<L>((TAPS, filters), (taps, L::COUNT), (out, TAPS));
        }
    }
}
