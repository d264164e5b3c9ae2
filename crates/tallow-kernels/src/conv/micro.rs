//! The innermost loops, each compiled for every SIMD level, and the table that picks one.
//!
//! Four of them: [`Product`] (a tile of output channels by pixels, from packed operands),
//! [`Reduction`] (a tile of the weight gradient, summed over pixels), [`RowSum`] and [`RowDots`]
//! (the same two for a single channel, where there is nothing to reuse between channels).
//! Accumulators start at zero and meet the output once, at the end: the error of a long sum then
//! grows with the number of blocks rather than with the number of terms.

use super::grid::Run;
use super::pack::{self, Lines};
use crate::registers::Lanes;
use crate::simd::by_level;

/// `c[i, j] (+)= sum over k of a[k, i] * b[k, j]` for a tile of `rows` by [`Kernels::columns`].
pub(super) struct Product {
    /// Terms of each sum.
    pub(super) depth: usize,
    /// `[depth][rows]`.
    pub(super) a: *const f32,
    /// `[depth][columns]`.
    pub(super) b: *const f32,
    /// `[rows]` rows of `columns`.
    pub(super) c: *mut f32,
    /// Floats from one row of `c` to the next.
    pub(super) c_stride: usize,
    /// A number for each row that the sum is added to, or null to add to what `c` holds.
    pub(super) start: *const f32,
}

/// `c[i, j] += sum over p of source[taps[i] + pixels[p]] * b[p, j]` for a tile of `rows` taps by
/// [`Kernels::columns`] output channels.
pub(super) struct Reduction {
    /// Pixels to sum over.
    pub(super) depth: usize,
    /// Pixels of the input.
    pub(super) source: *const f32,
    /// `[rows]` offsets into `source`.
    pub(super) taps: *const usize,
    /// `[depth]` offsets into `source`.
    pub(super) pixels: *const usize,
    /// `[depth][columns]`.
    pub(super) b: *const f32,
    /// `[rows][columns]`.
    pub(super) c: *mut f32,
}

/// `out[q] (+)= sum over k of weights[k] * source[q + taps[k]]` for `q` below `len`.
pub(super) struct RowSum {
    /// Outputs; the loop runs on to a multiple of [`MAX_LANES`].
    pub(super) len: usize,
    /// Terms of each sum.
    pub(super) depth: usize,
    pub(super) source: *const f32,
    /// `[depth]` offsets into `source`.
    pub(super) taps: *const usize,
    /// `[depth]`.
    pub(super) weights: *const f32,
    pub(super) out: *mut f32,
    /// Add to what `out` holds.
    pub(super) accumulate: bool,
}

/// `sums[i] = sum over q of values[q] * source[q + taps[i]]` for `i` below `rows`.
pub(super) struct RowDots {
    /// Terms of each sum; the loop runs on to a multiple of [`MAX_LANES`].
    pub(super) len: usize,
    pub(super) values: *const f32,
    pub(super) source: *const f32,
    /// `[rows]` offsets into `source`.
    pub(super) taps: *const usize,
    /// `[rows]`.
    pub(super) sums: *mut f32,
}

/// The most floats that any level's register holds.
pub(super) const MAX_LANES: usize = 16;
/// The most rows of any level's tile.
pub(super) const MAX_ROWS: usize = 12;
/// The most columns of any level's tile.
pub(super) const MAX_COLUMNS: usize = 32;
/// The most rows of [`RowDots`].
pub(super) const DOT_ROWS: usize = 8;

/// [`pack::panel`] of one level: source, runs, offsets, panel.
type PackPanel = unsafe fn(&[f32], &[Run], &[usize], &mut [f32]);

/// One level's micro-kernels and the tile that they are written for.
///
/// The functions demand that the CPU has the level, which [`Kernels::current`] sees to, that
/// `rows` is between 1 and the tile's, and that pointers are valid for what their fields say.
pub(super) struct Kernels {
    /// Most rows of a tile.
    pub(super) rows: usize,
    /// Columns of a tile.
    pub(super) columns: usize,
    pub(super) product: unsafe fn(usize, &Product),
    pub(super) reduction: unsafe fn(usize, &Reduction),
    pub(super) row_sum: unsafe fn(&RowSum),
    /// `rows` is at most [`DOT_ROWS`].
    pub(super) row_dots: unsafe fn(usize, &RowDots),
    pub(super) pack_panel: PackPanel,
    /// [`pack::lines`].
    pub(super) copy_lines: unsafe fn(&Lines),
    /// [`pack::transposed`].
    pub(super) pack_transposed: unsafe fn(&[f32], usize, usize, &mut [f32]),
}

impl Kernels {
    /// The kernels of the level in force.
    pub(super) fn current() -> &'static Self {
        by_level!(avx512: &avx512::KERNELS, avx2: &avx2::KERNELS, portable: &portable::KERNELS)
    }
}

#[inline(always)]
unsafe fn product<L: Lanes, const ROWS: usize, const VECTORS: usize>(args: &Product) {
    // SAFETY: the caller has the level, and the fields are valid for the tile.
    unsafe {
        let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
        let (mut a, mut b) = (args.a, args.b);
        for _ in 0..args.depth {
            let columns: [_; VECTORS] = std::array::from_fn(|j| L::load(b.add(j * L::COUNT)));
            for (i, sums) in sums.iter_mut().enumerate() {
                let row = L::splat(*a.add(i));
                for (sum, &column) in sums.iter_mut().zip(&columns) {
                    *sum = L::multiply_add(row, column, *sum);
                }
            }
            a = a.add(ROWS);
            b = b.add(VECTORS * L::COUNT);
        }
        for (i, sums) in sums.iter().enumerate() {
            for (j, &sum) in sums.iter().enumerate() {
                let c = args.c.add(i * args.c_stride + j * L::COUNT);
                let start = if args.start.is_null() {
                    L::load(c)
                } else {
                    L::splat(*args.start.add(i))
                };
                L::store(c, L::add(sum, start));
            }
        }
    }
}

#[inline(always)]
unsafe fn reduction<L: Lanes, const ROWS: usize, const VECTORS: usize>(args: &Reduction) {
    // SAFETY: the caller has the level, and the fields are valid for the tile.
    unsafe {
        let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
        let rows: [_; ROWS] = std::array::from_fn(|i| args.source.add(*args.taps.add(i)));
        let mut b = args.b;
        for p in 0..args.depth {
            let pixel = *args.pixels.add(p);
            let columns: [_; VECTORS] = std::array::from_fn(|j| L::load(b.add(j * L::COUNT)));
            for (sums, row) in sums.iter_mut().zip(&rows) {
                let value = L::splat(*row.add(pixel));
                for (sum, &column) in sums.iter_mut().zip(&columns) {
                    *sum = L::multiply_add(value, column, *sum);
                }
            }
            b = b.add(VECTORS * L::COUNT);
        }
        for (i, sums) in sums.iter().enumerate() {
            for (j, &sum) in sums.iter().enumerate() {
                let c = args.c.add((i * VECTORS + j) * L::COUNT);
                L::store(c, L::add(sum, L::load(c)));
            }
        }
    }
}

#[inline(always)]
unsafe fn row_sum<L: Lanes>(args: &RowSum) {
    let end = args.len.next_multiple_of(MAX_LANES);
    let wide = 4 * L::COUNT;
    let mut q = 0;
    // SAFETY: the caller has the level; `q` stays below `len` rounded up to `MAX_LANES`.
    unsafe {
        while q + wide <= end {
            row_sum_at::<L, 4>(args, q);
            q += wide;
        }
        while q < end {
            row_sum_at::<L, 1>(args, q);
            q += L::COUNT;
        }
    }
}

#[inline(always)]
unsafe fn row_sum_at<L: Lanes, const VECTORS: usize>(args: &RowSum, q: usize) {
    // SAFETY: the caller has the level, and the fields are valid from `q` on.
    unsafe {
        let mut sums = [L::splat(0.0); VECTORS];
        for k in 0..args.depth {
            let weight = L::splat(*args.weights.add(k));
            let source = args.source.add(q + *args.taps.add(k));
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = L::multiply_add(weight, L::load(source.add(j * L::COUNT)), *sum);
            }
        }
        for (j, &sum) in sums.iter().enumerate() {
            let out = args.out.add(q + j * L::COUNT);
            let start = if args.accumulate {
                L::load(out)
            } else {
                L::splat(0.0)
            };
            L::store(out, L::add(sum, start));
        }
    }
}

#[inline(always)]
unsafe fn row_dots<L: Lanes, const ROWS: usize>(args: &RowDots) {
    // SAFETY: the caller has the level, and the fields are valid for the rounded length.
    unsafe {
        let mut sums = [L::splat(0.0); ROWS];
        let rows: [_; ROWS] = std::array::from_fn(|i| args.source.add(*args.taps.add(i)));
        let end = args.len.next_multiple_of(MAX_LANES);
        for q in (0..end).step_by(L::COUNT) {
            let value = L::load(args.values.add(q));
            for (sum, row) in sums.iter_mut().zip(&rows) {
                *sum = L::multiply_add(value, L::load(row.add(q)), *sum);
            }
        }
        for (i, &sum) in sums.iter().enumerate() {
            *args.sums.add(i) = L::sum(sum);
        }
    }
}

/// Compiles the micro-kernels for one level, with a tile of `rows` by `vectors` registers.
macro_rules! compile {
    ($module:ident, $lanes:ident, rows: [$($row:literal)+], vectors: $vectors:literal, $(#[$features:meta])?) => {
        mod $module {
            use super::*;
            use crate::registers::$lanes as L;

            const ROWS: usize = [$($row),+].len();
            const COLUMNS: usize = $vectors * <L as Lanes>::COUNT;
            const _: () = assert!(ROWS <= MAX_ROWS && COLUMNS <= MAX_COLUMNS);

            pub(super) static KERNELS: Kernels = Kernels {
                rows: ROWS,
                columns: COLUMNS,
                product,
                reduction,
                row_sum,
                row_dots,
                pack_panel,
                copy_lines,
                pack_transposed,
            };

            $(#[$features])?
            unsafe fn product(rows: usize, args: &Product) {
                // SAFETY: as the caller promises.
                unsafe {
                    match rows {
                        $($row => super::product::<L, $row, $vectors>(args),)+
                        _ => unreachable!("a tile has at most {ROWS} rows"),
                    }
                }
            }

            $(#[$features])?
            unsafe fn reduction(rows: usize, args: &Reduction) {
                // SAFETY: as the caller promises.
                unsafe {
                    match rows {
                        $($row => super::reduction::<L, $row, $vectors>(args),)+
                        _ => unreachable!("a tile has at most {ROWS} rows"),
                    }
                }
            }

            $(#[$features])?
            unsafe fn row_sum(args: &RowSum) {
                // SAFETY: as the caller promises.
                unsafe { super::row_sum::<L>(args) }
            }

            $(#[$features])?
            unsafe fn row_dots(rows: usize, args: &RowDots) {
                // SAFETY: as the caller promises.
                unsafe {
                    match rows {
                        1 => super::row_dots::<L, 1>(args),
                        2 => super::row_dots::<L, 2>(args),
                        3 => super::row_dots::<L, 3>(args),
                        4 => super::row_dots::<L, 4>(args),
                        5 => super::row_dots::<L, 5>(args),
                        6 => super::row_dots::<L, 6>(args),
                        7 => super::row_dots::<L, 7>(args),
                        8 => super::row_dots::<L, 8>(args),
                        _ => unreachable!("at most {DOT_ROWS} dot products at a time"),
                    }
                }
            }

            $(#[$features])?
            unsafe fn pack_panel(
                source: &[f32],
                runs: &[Run],
                offsets: &[usize],
                panel: &mut [f32],
            ) {
                pack::panel::<COLUMNS>(source, runs, offsets, panel);
            }

            $(#[$features])?
            unsafe fn copy_lines(lines: &Lines) {
                // SAFETY: as the caller promises.
                unsafe { pack::lines(lines) }
            }

            $(#[$features])?
            unsafe fn pack_transposed(source: &[f32], plane: usize, planes: usize, to: &mut [f32]) {
                pack::transposed::<COLUMNS>(source, plane, planes, to);
            }
        }
    };
}

compile!(portable, Portable, rows: [1 2 3 4], vectors: 1,);

#[cfg(target_arch = "x86_64")]
compile!(
    avx2, Avx2, rows: [1 2 3 4 5 6], vectors: 2, #[target_feature(enable = "avx2,fma")]
);

#[cfg(target_arch = "x86_64")]
compile!(
    avx512, Avx512, rows: [1 2 3 4 5 6 7 8 9 10 11 12], vectors: 2,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
);
