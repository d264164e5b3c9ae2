//! The products of one point's plane: tiles by channels with packed weights, and tiles summed over for gradients.
//!
//! As `channels_last::micro`, but with operands whose rows are evenly spaced, so that no table of pointers is built
//! for each of the points.

#![allow(
    clippy::needless_range_loop,
    reason = "indices are those of the formulas"
)]

use super::pack::LINE;
use crate::registers::Lanes;

/// Terms of a sum that are added up from zero before they meet the rest: the error grows with their number.
pub(super) const CHUNK: usize = 128;

/// `out[panel][i][j] (+)= sum over k of a[i][k] * b[panel][k][j]`.
///
/// Every pointer must be valid for what its field says.
pub(super) struct Product {
    /// Rows of `a`, and of `out`.
    pub(super) rows: usize,
    /// Length of the sums.
    pub(super) depth: usize,
    /// Panels of columns.
    pub(super) panels: usize,
    /// `rows` rows of `depth` floats.
    pub(super) a: *const f32,
    /// Floats from one row of `a` to the next.
    pub(super) a_stride: usize,
    /// `[depth][columns]` a panel.
    pub(super) b: *const f32,
    /// Floats from one panel of `b` to the next.
    pub(super) b_panel: usize,
    /// Floats from `b` to what will be multiplied with next: asked for early, since the cache of all cores is slow.
    pub(super) ahead: usize,
    /// `rows` rows of `panels * columns` floats.
    pub(super) out: *mut f32,
    /// Floats from one row of `out` to the next.
    pub(super) out_stride: usize,
    /// Add to what `out` holds.
    pub(super) accumulate: bool,
}

/// `out[i][j] (+)= sum over p of a[p][i] * b[p][j]`.
///
/// Every pointer must be valid for what its field says.
pub(super) struct Reduction {
    /// Length of the sums.
    pub(super) depth: usize,
    /// Rows of `out`.
    pub(super) rows: usize,
    /// `depth` rows of `rows` floats.
    pub(super) a: *const f32,
    /// Floats from one row of `a` to the next.
    pub(super) a_stride: usize,
    /// `depth` rows of a panel's columns.
    pub(super) b: *const f32,
    /// Floats from one row of `b` to the next.
    pub(super) b_stride: usize,
    /// `rows` rows of a panel's columns.
    pub(super) out: *mut f32,
    /// Floats from one row of `out` to the next.
    pub(super) out_stride: usize,
    /// Add to what `out` holds.
    pub(super) accumulate: bool,
}

/// Rows of the next register tile where `left` are left: no tile is so low that it waits for its own sums.
#[inline(always)]
pub(super) fn tile_rows(left: usize, most: usize) -> usize {
    if left >= 2 * most {
        most
    } else if left > most {
        left.div_ceil(2)
    } else {
        left
    }
}

/// `sums[i][j] += a[i * spacing] * b[j]`, once for each of `depth` steps along `a` and `b`.
///
/// Where `AHEAD`, asks for what `ahead` points at to be brought into the cache meanwhile, a few floats at a time.
#[inline(always)]
unsafe fn multiply<L: Lanes, const ROWS: usize, const VECTORS: usize, const AHEAD: bool>(
    depth: usize,
    (mut a, spacing, a_step): (*const f32, usize, usize),
    (mut b, b_step): (*const f32, usize),
    (mut ahead, ahead_step): (*const f32, usize),
) -> [[L::Vector; VECTORS]; ROWS] {
    // SAFETY: the caller has the level, and pointers that are valid for all steps.
    unsafe {
        let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
        for _ in 0..depth {
            let mut columns = [L::splat(0.0); VECTORS];
            for j in 0..VECTORS {
                columns[j] = L::load(b.add(j * L::COUNT));
            }
            if AHEAD {
                for _ in (0..VECTORS * L::COUNT).step_by(LINE) {
                    L::prefetch(ahead);
                    ahead = ahead.wrapping_add(ahead_step);
                }
            }
            for i in 0..ROWS {
                let value = L::splat(*a.add(i * spacing));
                for j in 0..VECTORS {
                    sums[i][j] = L::multiply_add(value, columns[j], sums[i][j]);
                }
            }
            a = a.add(a_step);
            b = b.add(b_step);
        }
        sums
    }
}

/// Writes a tile of sums, or adds it to what is there.
#[inline(always)]
unsafe fn store<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    sums: &[[L::Vector; VECTORS]; ROWS],
    out: *mut f32,
    stride: usize,
    accumulate: bool,
) {
    // SAFETY: as the caller promises.
    unsafe {
        for i in 0..ROWS {
            for j in 0..VECTORS {
                let to = out.add(i * stride + j * L::COUNT);
                let sum = if accumulate {
                    L::add(sums[i][j], L::load(to))
                } else {
                    sums[i][j]
                };
                L::store(to, sum);
            }
        }
    }
}

/// One register tile of a [`Product`].
#[inline(always)]
pub(super) unsafe fn product_tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    args: &Product,
    (row, panel): (usize, usize),
    (first, depth): (usize, usize),
) {
    let columns = VECTORS * L::COUNT;
    // SAFETY: inside the operands that the caller's fields describe.
    unsafe {
        let a = args.a.add(row * args.a_stride + first);
        let b = args.b.add(panel * args.b_panel + first * columns);
        // Each register tile asks for its share of what comes next: memory is read as evenly as it is used.
        let ahead = b.wrapping_add(args.ahead + depth * columns * row / args.rows);
        let sums = multiply::<L, ROWS, VECTORS, true>(
            depth,
            (a, args.a_stride, 1),
            (b, columns),
            (ahead, LINE * ROWS / args.rows),
        );
        let out = args.out.add(row * args.out_stride + panel * columns);
        let accumulate = args.accumulate || first > 0;
        store::<L, ROWS, VECTORS>(&sums, out, args.out_stride, accumulate);
    }
}

/// One register tile of a [`Reduction`].
#[inline(always)]
pub(super) unsafe fn reduction_tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    args: &Reduction,
    row: usize,
) {
    // SAFETY: inside the operands that the caller's fields describe.
    unsafe {
        let (a, b) = ((args.a.add(row), 1, args.a_stride), (args.b, args.b_stride));
        let sums = multiply::<L, ROWS, VECTORS, false>(args.depth, a, b, (args.b, 0));
        let out = args.out.add(row * args.out_stride);
        store::<L, ROWS, VECTORS>(&sums, out, args.out_stride, args.accumulate);
    }
}
