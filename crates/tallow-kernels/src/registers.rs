//! Registers of floats: the few vector operations that the micro-kernels are written in.
//!
//! The autovectoriser doesn't keep a whole tile of accumulators in registers reliably, so the
//! micro-kernels name their registers; everything above them is plain Rust.

/// One level's vector register of `COUNT` floats.
///
/// # Safety
/// Every function may be called only on a CPU that has the level's instructions; pointers must
/// be valid for `COUNT` floats (any alignment).
pub(crate) trait Lanes {
    /// Floats in a register.
    const COUNT: usize;
    /// The register.
    type Vector: Copy;

    unsafe fn splat(value: f32) -> Self::Vector;
    unsafe fn load(from: *const f32) -> Self::Vector;
    unsafe fn store(to: *mut f32, value: Self::Vector);
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn sub(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn mul(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a * b + c`.
    unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// The larger of two floats, lane by lane; a NaN in `b` stays.
    unsafe fn max(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The smaller of two floats, lane by lane; a NaN in `b` stays.
    unsafe fn min(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `to[j * to_stride + i] = from[i * from_stride + j]` for eight rows and columns, whatever `COUNT` is.
    #[inline(always)]
    unsafe fn transpose_8x8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        for i in 0..8 {
            for j in 0..8 {
                // SAFETY: the caller's pointers are valid for eight rows of eight floats.
                unsafe { *to.add(j * to_stride + i) = *from.add(i * from_stride + j) };
            }
        }
    }

    /// Asks for the cache line of an address, which may be any.
    #[inline(always)]
    unsafe fn prefetch(at: *const f32) {
        // SAFETY: a hint, which never faults; every x86-64 CPU has the instruction.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// The sum of the floats, in an order that is the same each time.
    #[inline(always)]
    unsafe fn sum(value: Self::Vector) -> f32 {
        let mut lanes = [0.0; 16];
        // SAFETY: no level has more than 16 lanes; the CPU has the level as the caller promises.
        unsafe { Self::store(lanes.as_mut_ptr(), value) };
        let mut width = Self::COUNT / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
            width /= 2;
        }
        lanes[0]
    }
}

/// Eight floats in whatever registers the target has.
pub(crate) struct Portable;

impl Lanes for Portable {
    const COUNT: usize = 8;
    type Vector = [f32; 8];

    #[inline(always)]
    unsafe fn splat(value: f32) -> [f32; 8] {
        [value; 8]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 8] {
        // SAFETY: the caller's pointer is valid for eight floats.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, value: [f32; 8]) {
        // SAFETY: the caller's pointer is valid for eight floats.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(value) }
    }

    #[inline(always)]
    unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    unsafe fn sub(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] - b[lane])
    }

    #[inline(always)]
    unsafe fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    unsafe fn multiply_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        // Not `mul_add`: without the instruction that is a call into the C library.
        std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
    }

    #[inline(always)]
    unsafe fn max(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| if a[lane] > b[lane] { a[lane] } else { b[lane] })
    }

    #[inline(always)]
    unsafe fn min(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| if a[lane] < b[lane] { a[lane] } else { b[lane] })
    }
}

mod integers;

#[cfg(target_arch = "x86_64")]
pub(crate) use integers::{
    Avx2Halves, Avx2Pairs, Avx512Halves, Avx512Pairs, Avx512Vnni, Avx512VnniFours,
};
pub(crate) use integers::{PortableFours, PortableHalves, PortablePairsOfIntegers};

#[cfg(test)]
pub(crate) use crate::channels_last::pairs::PortablePairs;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512, Avx512Bf16};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64 as arch;

    /// AVX2 and FMA.
    pub(crate) struct Avx2;

    /// AVX-512 F.
    pub(crate) struct Avx512;

    /// As [`Avx512`], but a product is one of pairs: see [`dot`].
    pub(crate) struct Avx512Bf16;

    /// Adds both products of two pairs of bfloat16 to a float, lane by lane; `a` and `b` hold a pair in the place of each
    /// float.
    #[inline(always)]
    unsafe fn dot(a: arch::__m512, b: arch::__m512, sum: arch::__m512) -> arch::__m512 {
        // SAFETY: the caller promises that the CPU has the instruction; registers of one size, any bits of which are valid.
        unsafe {
            let a = std::mem::transmute::<arch::__m512, arch::__m512bh>(a);
            let b = std::mem::transmute::<arch::__m512, arch::__m512bh>(b);
            arch::_mm512_dpbf16_ps(sum, a, b)
        }
    }

    /// As [`Lanes::transpose_8x8`], in AVX2 registers.
    #[inline(always)]
    unsafe fn transpose_8x8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        use arch::{
            _mm256_permute2f128_ps as halves, _mm256_shuffle_ps as shuffle,
            _mm256_unpackhi_ps as high, _mm256_unpacklo_ps as low,
        };
        // SAFETY: the caller has AVX2, and the pointers are valid for eight rows of eight floats.
        unsafe {
            let mut rows = [arch::_mm256_setzero_ps(); 8];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = arch::_mm256_loadu_ps(from.add(i * from_stride));
            }
            let mut pairs = rows;
            for i in 0..4 {
                pairs[2 * i] = low(rows[2 * i], rows[2 * i + 1]);
                pairs[2 * i + 1] = high(rows[2 * i], rows[2 * i + 1]);
            }
            // Columns `k` and `k + 4` of four rows each.
            let mut quads = rows;
            for i in [0, 4] {
                quads[i] = shuffle::<0x44>(pairs[i], pairs[i + 2]);
                quads[i + 1] = shuffle::<0xee>(pairs[i], pairs[i + 2]);
                quads[i + 2] = shuffle::<0x44>(pairs[i + 1], pairs[i + 3]);
                quads[i + 3] = shuffle::<0xee>(pairs[i + 1], pairs[i + 3]);
            }
            for k in 0..4 {
                let (first, last) = (quads[k], quads[k + 4]);
                arch::_mm256_storeu_ps(to.add(k * to_stride), halves::<0x20>(first, last));
                arch::_mm256_storeu_ps(to.add((k + 4) * to_stride), halves::<0x31>(first, last));
            }
        }
    }

    macro_rules! lanes {
        ($level:ty, $count:literal, $vector:ty, $splat:ident, $load:ident, $store:ident,
         $add:ident, $sub:ident, $mul:ident, $multiply_add:path, $max:ident, $min:ident) => {
            impl Lanes for $level {
                const COUNT: usize = $count;
                type Vector = $vector;

                #[inline(always)]
                unsafe fn splat(value: f32) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { arch::$splat(value) }
                }

                #[inline(always)]
                unsafe fn load(from: *const f32) -> $vector {
                    // SAFETY: as above, and the pointer is valid for a register.
                    unsafe { arch::$load(from) }
                }

                #[inline(always)]
                unsafe fn store(to: *mut f32, value: $vector) {
                    // SAFETY: as above, and the pointer is valid for a register.
                    unsafe { arch::$store(to, value) }
                }

                #[inline(always)]
                unsafe fn add(a: $vector, b: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { arch::$add(a, b) }
                }

                #[inline(always)]
                unsafe fn sub(a: $vector, b: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { arch::$sub(a, b) }
                }

                #[inline(always)]
                unsafe fn mul(a: $vector, b: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { arch::$mul(a, b) }
                }

                #[inline(always)]
                unsafe fn multiply_add(a: $vector, b: $vector, c: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { $multiply_add(a, b, c) }
                }

                #[inline(always)]
                unsafe fn max(a: $vector, b: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { arch::$max(a, b) }
                }

                #[inline(always)]
                unsafe fn min(a: $vector, b: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { arch::$min(a, b) }
                }

                #[inline(always)]
                unsafe fn transpose_8x8(
                    from: *const f32,
                    from_stride: usize,
                    to: *mut f32,
                    to_stride: usize,
                ) {
                    // SAFETY: all levels here have AVX2; the pointers are as the caller promises.
                    unsafe { transpose_8x8(from, from_stride, to, to_stride) }
                }
            }
        };
    }

    lanes!(
        Avx2,
        8,
        arch::__m256,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_add_ps,
        _mm256_sub_ps,
        _mm256_mul_ps,
        arch::_mm256_fmadd_ps,
        _mm256_max_ps,
        _mm256_min_ps
    );
    lanes!(
        Avx512,
        16,
        arch::__m512,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_add_ps,
        _mm512_sub_ps,
        _mm512_mul_ps,
        arch::_mm512_fmadd_ps,
        _mm512_max_ps,
        _mm512_min_ps
    );
    lanes!(
        Avx512Bf16,
        16,
        arch::__m512,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_add_ps,
        _mm512_sub_ps,
        _mm512_mul_ps,
        dot,
        _mm512_max_ps,
        _mm512_min_ps
    );
}
