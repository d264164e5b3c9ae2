//! Numbers in bfloat16: the sign, exponent and 7 bits of the fraction of an `f32`.
//!
//! Slices stay `f32`. Kernels that compute in bfloat16 round their operands, sum in `f32` and return `f32`, as
//! `torch.autocast` has its products computed: [`gemm()`] here, and
//! [`Algorithm::Bf16`](crate::channels_last::conv::Algorithm::Bf16) for convolutions. Where the CPU has AVX-512 BF16
//! ([`Level::Avx512Bf16`](crate::simd::Level::Avx512Bf16)) they multiply pairs of numbers with its instruction, which takes
//! subnormal numbers for zero and rounds sums in an order of its own; elsewhere they round to copies that the kernels
//! for `f32` multiply. So results differ in the last bits between levels, but not between numbers of threads.

mod matrix;

use crate::error::{Result, check_len};
use crate::parallel;
use crate::simd::dispatch;

pub use matrix::{batched, gemm};

/// `y`: `x` rounded to the nearest number that bfloat16 has, the one with an even last bit where two are as near.
///
/// As `x.to(torch.bfloat16).to(torch.float32)`: infinities and subnormal numbers are numbers like all others, what is too
/// large becomes infinite, and NaN stays NaN.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) where `y` is longer or shorter than `x`.
///
/// ```
/// let mut y = [0.0; 3];
/// tallow_kernels::bf16::round(&[1.0, 3.1415927, f32::MAX], &mut y)?;
/// assert_eq!(y, [1.0, 3.140625, f32::INFINITY]);
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
pub fn round(x: &[f32], y: &mut [f32]) -> Result<()> {
    check_len("bf16::round", "y", y, x.len())?;
    parallel::for_each(x.len(), parallel::LEAF, (x, y), |_, (x, y)| {
        round_leaf(x, y);
    });
    Ok(())
}

dispatch! {
    fn round_leaf<I>(x: &[f32], y: &mut [f32]) -> () {
        for (y, x) in y.iter_mut().zip(x) {
            *y = f32::from_bits(nearest(*x));
        }
    }
}

/// The bits of the nearest bfloat16, in the upper half of an `f32`'s.
#[inline(always)]
fn nearest(x: f32) -> u32 {
    /// The NaN that PyTorch makes of every NaN. Rounding the bits of one could end at infinity.
    const NAN: u32 = 0x7fc0_0000;
    let bits = x.to_bits();
    // Half of the last bit that stays, less one where that bit is even: a carry out of the lower half rounds up, up to
    // infinity, whose exponent follows the largest number's.
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
    if x.is_nan() { NAN } else { rounded }
}

/// Two bfloat16 in the place of one `f32`, the first in the lower half.
///
/// Such words travel through buffers and copies of `f32`, which leave bits as they are, but are no numbers to compute
/// with.
#[inline(always)]
fn pair(first: f32, second: f32) -> f32 {
    f32::from_bits(nearest(first) >> 16 | nearest(second))
}

dispatch! {
    /// Pairs of neighbours, the last one with zero where there is no other.
    fn pair_neighbours<I>(from: &[f32], to: &mut [f32]) -> () {
        let (pairs, rest) = from.as_chunks::<2>();
        for (to, [first, second]) in to.iter_mut().zip(pairs) {
            *to = pair(*first, *second);
        }
        if let ([last], Some(to)) = (rest, to.get_mut(pairs.len())) {
            *to = pair(*last, 0.0);
        }
    }
}

dispatch! {
    /// Pairs of what two rows hold at the same place.
    pub(crate) fn pair_two_rows<I>(first: &[f32], second: &[f32], to: &mut [f32]) -> () {
        for (to, (first, second)) in to.iter_mut().zip(first.iter().zip(second)) {
            *to = pair(*first, *second);
        }
    }
}

dispatch! {
    /// Pairs of what a row holds with zeros.
    pub(crate) fn pair_with_zeros<I>(row: &[f32], to: &mut [f32]) -> () {
        for (to, value) in to.iter_mut().zip(row) {
            *to = pair(*value, 0.0);
        }
    }
}

/// Pairs the rows of matrices `[rows, width]`, so that they become `[ceil(rows / 2), width]`: the first row with the
/// second and so on, the last one with zeros where there is no other.
///
/// `from` and `to` hold as many matrices.
pub(crate) fn pair_rows(from: &[f32], [rows, width]: [usize; 2], to: &mut [f32]) {
    if from.is_empty() {
        return;
    }
    // Where all rows have another, it matters not where a matrix ends, and tasks may be cut anywhere.
    let rows = if rows.is_multiple_of(2) { 2 } else { rows };
    let (matrix, paired) = (rows * width, rows.div_ceil(2) * width);
    let operands = (parallel::rows(from, matrix), parallel::rows(to, paired));
    let grain = parallel::grain(matrix);
    parallel::for_each(from.len() / matrix, grain, operands, |_, (from, to)| {
        if [rows, width] == [2, 1] {
            return pair_neighbours(from.data, to.data);
        }
        let matrices = from.data.chunks_exact(matrix);
        for (from, to) in matrices.zip(to.data.chunks_exact_mut(paired)) {
            if width == 1 {
                pair_neighbours(from, to);
                continue;
            }
            for (from, to) in from.chunks(2 * width).zip(to.chunks_exact_mut(width)) {
                let (first, second) = from.split_at(width);
                if second.is_empty() {
                    pair_with_zeros(first, to);
                } else {
                    pair_two_rows(first, second, to);
                }
            }
        }
    });
}
