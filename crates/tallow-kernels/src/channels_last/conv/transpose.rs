//! Eight rows of eight floats, turned in registers.

use crate::simd::Isa;

/// Rows of a square.
pub(super) const SIDE: usize = 8;

/// `[row][column]` of a square.
pub(super) type Square = [[f32; SIDE]; SIDE];

/// Swaps rows and columns. To be called in a body that is compiled for the level.
#[inline(always)]
pub(super) fn transpose<I: Isa>(rows: &Square) -> Square {
    // Left to itself the compiler moves one float at a time.
    #[cfg(target_arch = "x86_64")]
    if I::FMA {
        // SAFETY: levels with FMA have AVX2, and bodies run on CPUs of their level.
        return unsafe { x86::transpose(rows) };
    }
    std::array::from_fn(|column| rows.map(|row| row[column]))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{SIDE, Square};
    use std::arch::x86_64::{
        __m256, _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_storeu_ps,
        _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };

    /// # Safety
    /// The CPU must have AVX2.
    #[inline(always)]
    pub(super) unsafe fn transpose(rows: &Square) -> Square {
        // SAFETY: the CPU has the instructions, and rows are as long as registers.
        unsafe {
            let row = |i: usize| _mm256_loadu_ps(rows[i].as_ptr());
            let top = halves([row(0), row(1), row(2), row(3)]);
            let bottom = halves([row(4), row(5), row(6), row(7)]);
            let mut turned = [[0.0; SIDE]; SIDE];
            for i in 0..4 {
                let low = _mm256_permute2f128_ps::<0x20>(top[i], bottom[i]);
                let high = _mm256_permute2f128_ps::<0x31>(top[i], bottom[i]);
                _mm256_storeu_ps(turned[i].as_mut_ptr(), low);
                _mm256_storeu_ps(turned[i + 4].as_mut_ptr(), high);
            }
            turned
        }
    }

    /// Columns `i` and `i + 4` of four rows, in the halves of register `i`.
    #[inline(always)]
    unsafe fn halves(rows: [__m256; 4]) -> [__m256; 4] {
        // SAFETY: as the caller promises.
        unsafe {
            let [a, b, c, d] = rows;
            let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
            let (ab_high, cd_high) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
            [
                _mm256_shuffle_ps::<0x44>(ab, cd),
                _mm256_shuffle_ps::<0xee>(ab, cd),
                _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
                _mm256_shuffle_ps::<0xee>(ab_high, cd_high),
            ]
        }
    }
}
