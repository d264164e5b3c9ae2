//! The innermost loops, each compiled for every SIMD level, and the table that picks one.
//!
//! [`Product`] multiplies rows of activations, each anywhere in memory, with a panel of packed weights.
//! [`Reduction`] multiplies columns of activations with rows of gradients and sums over pixels.
//! Accumulators start at zero and meet the output once, at the end: the error of a long sum then grows with the
//! number of blocks rather than with the number of terms.
//!
//! Rows and panels hold floats, or in their places pairs of bfloat16 ([`Micro::pairs`]), of which both products go into
//! a sum.

use super::strip::{self, Strip};
use crate::registers::Lanes;
#[cfg(target_arch = "x86_64")]
use crate::simd::has_vnni;
use crate::simd::{Level, by_level, level};

/// `out[i][j] (+)= sum over t, k of rows[t][i][k] * b[t * depth + k][j]` for a tile of rows by
/// [`Micro::columns`].
///
/// Every pointer must be valid for what its field says, `out` rows and rows of `finish` for `columns` floats.
pub(crate) struct Product {
    /// Kernel taps: how many rows of activations go into a row of the output.
    pub(crate) taps: usize,
    /// Channels of a tap.
    pub(crate) depth: usize,
    /// `[taps][rows_stride]` pointers to `depth` floats each; the tile takes the first ones of every tap.
    pub(crate) rows: *const *const f32,
    /// Pointers from one tap to the next.
    pub(crate) rows_stride: usize,
    /// `[taps][depth][Micro::columns]`, all columns there.
    pub(crate) b: *const f32,
    /// Pointers to the rows of the tile.
    pub(crate) out: *const *mut f32,
    /// Columns to write, at most [`Micro::columns`].
    pub(crate) columns: usize,
    /// Add to what `out` holds.
    pub(crate) accumulate: bool,
    /// What to do with the sums before they are stored.
    pub(crate) finish: Option<Finish>,
}

/// `clamp(sum + bias + residual, low, high)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finish {
    /// A number a column, or null.
    pub(crate) bias: *const f32,
    /// Pointers to rows, as many as the tile's, or null.
    pub(crate) residual: *const *const f32,
    /// At least this; minus infinity for no bound.
    pub(crate) low: f32,
    /// At most this; infinity for no bound.
    pub(crate) high: f32,
}

/// `out[i][j] (+)= sum over p of rows[p][offset + i] * b[p][j]` for a tile of rows by [`Micro::columns`].
///
/// Of a kernel of pairs, `rows` hold single bfloat16, and a row of `b` the pairs of two pixels' numbers, the last one with
/// zeros where `depth` is odd.
///
/// Every pointer must be valid for what its field says.
pub(crate) struct Reduction {
    /// Pixels to sum over.
    pub(crate) depth: usize,
    /// `[depth]` pointers to rows of activations, of which the tile reads numbers from `offset` on.
    pub(crate) rows: *const *const f32,
    /// Where in the rows the tile starts.
    pub(crate) offset: usize,
    /// `depth` rows, or half as many of pairs, all [`Micro::columns`] there.
    pub(crate) b: *const f32,
    /// Floats from one row of `b` to the next.
    pub(crate) b_stride: usize,
    /// The tile's rows, all [`Micro::columns`] there.
    pub(crate) out: *mut f32,
    /// Floats from one row of `out` to the next.
    pub(crate) out_stride: usize,
    /// Add to what `out` holds.
    pub(crate) accumulate: bool,
}

/// The most columns of any level's tile.
pub(crate) const MAX_COLUMNS: usize = 64;

/// The most rows of any level's tile.
pub(crate) const MAX_ROWS: usize = 6;

/// One level's micro-kernels and the tile that they are written for.
///
/// The functions demand that the CPU has the level, which [`Micro::current`] sees to, and a number of rows between 1
/// and the tile's.
pub(crate) struct Micro {
    /// Most rows of a tile.
    pub(crate) rows: usize,
    /// Columns of a tile, and of a packed panel.
    pub(crate) columns: usize,
    /// Whether floats of rows and panels are pairs of bfloat16.
    pub(crate) pairs: bool,
    pub(crate) product: unsafe fn(usize, &Product),
    /// As `product`, of any number of rows that are evenly spaced.
    pub(crate) strip: unsafe fn(&Strip),
    pub(crate) reduction: unsafe fn(usize, &Reduction),
}

impl Micro {
    /// The kernels of the level in force.
    pub(crate) fn current() -> &'static Self {
        by_level!(avx512: &avx512::MICRO, avx2: &avx2::MICRO, portable: &portable::MICRO)
    }

    /// The kernels of the level in force for operands that were rounded to bfloat16: of pairs, where it has them.
    pub(crate) fn bf16() -> &'static Self {
        #[cfg(test)]
        if super::pairs::forced() {
            return &portable_pairs::MICRO;
        }
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16 => &avx512_bf16::MICRO,
            _ => Self::current(),
        }
    }

    /// The kernels of the level in force for pairs of 16-bit whole numbers and 32-bit sums.
    pub(crate) fn integers() -> &'static Self {
        by_level!(
            avx512: if has_vnni() { &avx512_vnni::MICRO } else { &avx512_integers::MICRO },
            avx2: &avx2_integers::MICRO,
            portable: &portable_integers::MICRO,
        )
    }

    /// Kernels for fours of 8-bit whole numbers, of the activations without a sign, and 32-bit sums: with AVX-512 VNNI, or for
    /// any CPU.
    pub(crate) fn fours() -> &'static Self {
        by_level!(
            avx512: if has_vnni() { &avx512_fours::MICRO } else { &portable_fours::MICRO },
            avx2: &portable_fours::MICRO,
            portable: &portable_fours::MICRO,
        )
    }
}

#[inline(always)]
unsafe fn product<L: Lanes, const ROWS: usize, const VECTORS: usize>(args: &Product) {
    // SAFETY: the caller has the level, and the fields are valid for the tile.
    unsafe {
        let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
        for i in 0..ROWS {
            prefetch_row::<L, VECTORS>(*args.out.add(i));
        }
        let mut b = args.b;
        for tap in 0..args.taps {
            let table = args.rows.add(tap * args.rows_stride);
            let mut rows = [std::ptr::null(); ROWS];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = *table.add(i);
            }
            for k in 0..args.depth {
                multiply_step::<L, ROWS, VECTORS>(&mut sums, b, |i| *rows[i].add(k));
                b = b.add(VECTORS * L::COUNT);
            }
        }
        let mut out = [std::ptr::null_mut(); ROWS];
        for (i, out) in out.iter_mut().enumerate() {
            *out = *args.out.add(i);
        }
        if args.columns == VECTORS * L::COUNT {
            store_tile::<L, ROWS, VECTORS>(sums, &out, args.accumulate, args.finish.as_ref());
        } else {
            let part = (args.columns, args.accumulate, args.finish.as_ref());
            store_part::<L, ROWS, VECTORS>(sums, &out, part);
        }
    }
}

/// One term of every sum of a tile: `sums[i][j] += a(i) * b[j]`.
#[inline(always)]
unsafe fn multiply_step<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    sums: &mut [[L::Vector; VECTORS]; ROWS],
    b: *const f32,
    a: impl Fn(usize) -> f32,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut columns = [L::splat(0.0); VECTORS];
        for (j, column) in columns.iter_mut().enumerate() {
            *column = L::load(b.add(j * L::COUNT));
        }
        for (i, sums) in sums.iter_mut().enumerate() {
            let value = L::splat(a(i));
            for (sum, &column) in sums.iter_mut().zip(&columns) {
                *sum = L::multiply_add(value, column, *sum);
            }
        }
    }
}

/// Asks for a row of the output ahead of its store, which comes when the sums are complete.
#[inline(always)]
pub(super) unsafe fn prefetch_row<L: Lanes, const VECTORS: usize>(row: *const f32) {
    const LINE: usize = 16;
    for start in (0..VECTORS * L::COUNT).step_by(LINE) {
        // SAFETY: prefetching is allowed at any address.
        unsafe { L::prefetch(row.wrapping_add(start)) };
    }
}

/// Finishes a whole tile and writes it.
///
/// One short loop after the other, each of which the compiler unrolls: were a loop left, its index would have the sums lie
/// in memory, and every step of the multiplication store them there.
#[inline(always)]
pub(super) unsafe fn store_tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    mut sums: [[L::Vector; VECTORS]; ROWS],
    out: &[*mut f32; ROWS],
    accumulate: bool,
    finish: Option<&Finish>,
) {
    let sums = &mut sums;
    // SAFETY: as the caller promises.
    unsafe {
        if accumulate {
            each::<L, ROWS, VECTORS>(sums, |i, j, sum| {
                L::add(sum, L::load(out[i].add(j * L::COUNT)))
            });
        }
        if let Some(finish) = finish {
            if !finish.bias.is_null() {
                each::<L, ROWS, VECTORS>(sums, |_, j, sum| {
                    L::add(sum, L::load(finish.bias.add(j * L::COUNT)))
                });
            }
            if !finish.residual.is_null() {
                each::<L, ROWS, VECTORS>(sums, |i, j, sum| {
                    let residual = *finish.residual.add(i);
                    L::add(sum, L::load(residual.add(j * L::COUNT)))
                });
            }
            let (low, high) = (L::splat(finish.low), L::splat(finish.high));
            each::<L, ROWS, VECTORS>(sums, |_, _, sum| L::min(high, L::max(low, sum)));
        }
        each::<L, ROWS, VECTORS>(sums, |i, j, sum| {
            L::store(out[i].add(j * L::COUNT), sum);
            sum
        });
    }
}

/// Replaces every vector of a tile.
#[inline(always)]
fn each<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    sums: &mut [[L::Vector; VECTORS]; ROWS],
    f: impl Fn(usize, usize, L::Vector) -> L::Vector,
) {
    for (i, sums) in sums.iter_mut().enumerate() {
        for (j, sum) in sums.iter_mut().enumerate() {
            *sum = f(i, j, *sum);
        }
    }
}

/// Finishes a tile of which only the first columns exist, through buffers that have all of them.
#[inline(always)]
pub(super) unsafe fn store_part<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    sums: [[L::Vector; VECTORS]; ROWS],
    out: &[*mut f32; ROWS],
    (columns, accumulate, finish): (usize, bool, Option<&Finish>),
) {
    let mut tile = [[0.0f32; MAX_COLUMNS]; ROWS];
    let mut residual = [[0.0f32; MAX_COLUMNS]; ROWS];
    let mut bias = [0.0f32; MAX_COLUMNS];
    let mut tile_rows = [std::ptr::null_mut(); ROWS];
    let mut residual_rows = [std::ptr::null(); ROWS];
    // SAFETY: as the caller promises; buffers have the columns of the widest tile.
    unsafe {
        let finish = finish.copied().map(|mut finish| {
            if !finish.bias.is_null() {
                std::ptr::copy_nonoverlapping(finish.bias, bias.as_mut_ptr(), columns);
                finish.bias = bias.as_ptr();
            }
            if !finish.residual.is_null() {
                for (i, (row, to)) in residual_rows.iter_mut().zip(&mut residual).enumerate() {
                    let from = *finish.residual.add(i);
                    std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), columns);
                    *row = to.as_ptr();
                }
                finish.residual = residual_rows.as_ptr();
            }
            finish
        });
        for ((row, to), &from) in tile_rows.iter_mut().zip(&mut tile).zip(out) {
            if accumulate {
                std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), columns);
            }
            *row = to.as_mut_ptr();
        }
        store_tile::<L, ROWS, VECTORS>(sums, &tile_rows, accumulate, finish.as_ref());
        for (from, &to) in tile_rows.iter().zip(out) {
            std::ptr::copy_nonoverlapping(*from, to, columns);
        }
    }
}

#[inline(always)]
unsafe fn reduction<L: Lanes, const ROWS: usize, const VECTORS: usize>(args: &Reduction) {
    // SAFETY: the caller has the level, and the fields are valid for the tile.
    unsafe {
        let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
        for i in 0..ROWS {
            prefetch_row::<L, VECTORS>(args.out.add(i * args.out_stride));
        }
        let mut b = args.b;
        for p in 0..args.depth {
            let row = (*args.rows.add(p)).add(args.offset);
            multiply_step::<L, ROWS, VECTORS>(&mut sums, b, |i| *row.add(i));
            b = b.add(args.b_stride);
        }
        store_reduction::<L, ROWS, VECTORS>(sums, args);
    }
}

/// As [`reduction`], of pairs: a pixel's number and the next pixel's are brought together on the way into a register.
#[cfg(any(test, target_arch = "x86_64"))]
#[inline(always)]
unsafe fn reduction_of_pairs<L: Lanes, const ROWS: usize, const VECTORS: usize>(args: &Reduction) {
    // SAFETY: the caller has the level, and the fields are valid for the tile.
    unsafe {
        let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
        for i in 0..ROWS {
            prefetch_row::<L, VECTORS>(args.out.add(i * args.out_stride));
        }
        let row = |p: usize| (*args.rows.add(p)).cast::<u16>().add(args.offset);
        let word = |low: u16, high: u16| f32::from_bits(u32::from(low) | u32::from(high) << 16);
        let mut b = args.b;
        for p in (1..args.depth).step_by(2) {
            let (first, second) = (row(p - 1), row(p));
            multiply_step::<L, ROWS, VECTORS>(&mut sums, b, |i| {
                word(*first.add(i), *second.add(i))
            });
            b = b.add(args.b_stride);
        }
        if args.depth % 2 == 1 {
            let last = row(args.depth - 1);
            multiply_step::<L, ROWS, VECTORS>(&mut sums, b, |i| word(*last.add(i), 0));
        }
        store_reduction::<L, ROWS, VECTORS>(sums, args);
    }
}

/// Stores the sums of a reduction.
#[inline(always)]
unsafe fn store_reduction<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    sums: [[L::Vector; VECTORS]; ROWS],
    args: &Reduction,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut out = [std::ptr::null_mut(); ROWS];
        for (i, out) in out.iter_mut().enumerate() {
            *out = args.out.add(i * args.out_stride);
        }
        store_tile::<L, ROWS, VECTORS>(sums, &out, args.accumulate, None);
    }
}

/// Compiles the micro-kernels for one level, with a tile of `rows` by `vectors` registers.
macro_rules! compile {
    ($module:ident, $lanes:ident, $reduction:ident, pairs: $pairs:literal, rows: [$($row:literal)+],
     vectors: $vectors:literal, $(#[$features:meta])?) => {
        mod $module {
            use super::*;
            use crate::registers::$lanes as L;

            const ROWS: usize = [$($row),+].len();
            const COLUMNS: usize = $vectors * <L as Lanes>::COUNT;
            const _: () = assert!(ROWS <= MAX_ROWS && COLUMNS <= MAX_COLUMNS);

            pub(crate) static MICRO: Micro = Micro {
                rows: ROWS,
                columns: COLUMNS,
                pairs: $pairs,
                product,
                strip,
                reduction,
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
            unsafe fn strip(args: &Strip) {
                let mut first = 0;
                while first < args.pixels {
                    let rows = strip::tile_rows(args.pixels - first, ROWS);
                    // SAFETY: as the caller promises.
                    unsafe {
                        match rows {
                            $($row => strip::tile::<L, $row, $vectors>(args, first),)+
                            _ => unreachable!("a tile has at most {ROWS} rows"),
                        }
                    }
                    first += rows;
                }
            }

            $(#[$features])?
            unsafe fn reduction(rows: usize, args: &Reduction) {
                // SAFETY: as the caller promises.
                unsafe {
                    match rows {
                        $($row => super::$reduction::<L, $row, $vectors>(args),)+
                        _ => unreachable!("a tile has at most {ROWS} rows"),
                    }
                }
            }
        }
    };
}

compile!(portable, Portable, reduction, pairs: false, rows: [1 2 3 4], vectors: 1,);

#[cfg(test)]
compile!(portable_pairs, PortablePairs, reduction_of_pairs, pairs: true, rows: [1 2 3 4], vectors: 1,);

#[cfg(target_arch = "x86_64")]
compile!(
    avx2, Avx2, reduction, pairs: false, rows: [1 2 3 4 5 6], vectors: 2,
    #[target_feature(enable = "avx2,fma")]
);

#[cfg(target_arch = "x86_64")]
compile!(
    avx512, Avx512, reduction, pairs: false, rows: [1 2 3 4 5 6], vectors: 4,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
);

#[cfg(target_arch = "x86_64")]
compile!(
    avx512_bf16, Avx512Bf16, reduction_of_pairs, pairs: true, rows: [1 2 3 4 5 6], vectors: 4,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
);

compile!(portable_fours, PortableFours, reduction, pairs: false, rows: [1 2 3 4], vectors: 1,);

#[cfg(target_arch = "x86_64")]
compile!(
    avx512_fours, Avx512VnniFours, reduction, pairs: false, rows: [1 2 3 4 5 6], vectors: 4,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
);

compile!(
    portable_integers, PortablePairsOfIntegers, reduction, pairs: true, rows: [1 2 3 4], vectors: 1,
);

#[cfg(target_arch = "x86_64")]
compile!(
    avx2_integers, Avx2Pairs, reduction, pairs: true, rows: [1 2 3 4 5 6], vectors: 2,
    #[target_feature(enable = "avx2,fma")]
);

#[cfg(target_arch = "x86_64")]
compile!(
    avx512_integers, Avx512Pairs, reduction, pairs: true, rows: [1 2 3 4 5 6], vectors: 4,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
);

#[cfg(target_arch = "x86_64")]
compile!(
    avx512_vnni, Avx512Vnni, reduction, pairs: true, rows: [1 2 3 4 5 6], vectors: 4,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
);

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: usize, seed: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((i * 37 + seed * 11) % 23) as f32 / 8.0 - 1.4)
            .collect()
    }

    /// The tile of a product with everything in it, at this level, beside plain loops.
    #[test]
    fn product_is_the_plain_sum() {
        let micro = Micro::current();
        let (taps, depth, wide) = (3, 5, micro.columns);
        for rows in 1..=micro.rows {
            for columns in [1, wide / 2 + 1, wide] {
                let a = numbers(taps * rows * depth, 1);
                let b = numbers(taps * depth * wide, 2);
                let (bias, residual) = (numbers(columns, 3), numbers(rows * columns, 4));
                let before = numbers(rows * columns, 5);
                let mut out = before.clone();
                let table: Vec<_> = a.chunks(depth).map(<[f32]>::as_ptr).collect();
                let tile: Vec<_> = out.chunks_mut(columns).map(<[f32]>::as_mut_ptr).collect();
                let other: Vec<_> = residual.chunks(columns).map(<[f32]>::as_ptr).collect();
                let args = Product {
                    taps,
                    depth,
                    rows: table.as_ptr(),
                    rows_stride: rows,
                    b: b.as_ptr(),
                    out: tile.as_ptr(),
                    columns,
                    accumulate: true,
                    finish: Some(Finish {
                        bias: bias.as_ptr(),
                        residual: other.as_ptr(),
                        low: 0.0,
                        high: 6.0,
                    }),
                };
                // SAFETY: `current` is a level of this CPU, and all vectors are as long as the fields say.
                unsafe { (micro.product)(rows, &args) };
                for i in 0..rows {
                    for j in 0..columns {
                        let mut sum = before[i * columns + j] + bias[j] + residual[i * columns + j];
                        for t in 0..taps {
                            for k in 0..depth {
                                sum +=
                                    a[(t * rows + i) * depth + k] * b[(t * depth + k) * wide + j];
                            }
                        }
                        let found = out[i * columns + j];
                        assert!(
                            (found - sum.clamp(0.0, 6.0)).abs() < 1e-4,
                            "{rows} {columns}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn reduction_is_the_plain_sum() {
        let micro = Micro::current();
        let (depth, wide, width) = (7, micro.columns, micro.rows + 2);
        for rows in 1..=micro.rows {
            let a = numbers(depth * width, 1);
            let b = numbers(depth * wide, 2);
            let before = numbers(rows * wide, 3);
            let mut out = before.clone();
            let table: Vec<_> = a.chunks(width).map(<[f32]>::as_ptr).collect();
            let args = Reduction {
                depth,
                rows: table.as_ptr(),
                offset: 2,
                b: b.as_ptr(),
                b_stride: wide,
                out: out.as_mut_ptr(),
                out_stride: wide,
                accumulate: true,
            };
            // SAFETY: `current` is a level of this CPU, and all vectors are as long as the fields say.
            unsafe { (micro.reduction)(rows, &args) };
            for i in 0..rows {
                for j in 0..wide {
                    let sum = (0..depth).map(|p| a[p * width + 2 + i] * b[p * wide + j]);
                    let expected = before[i * wide + j] + sum.sum::<f32>();
                    assert!((out[i * wide + j] - expected).abs() < 1e-4, "{rows}");
                }
            }
        }
    }
}
