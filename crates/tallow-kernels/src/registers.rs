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
    /// `a * b + c`.
    unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// The larger of two floats, lane by lane; a NaN in `b` stays.
    unsafe fn max(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The smaller of two floats, lane by lane; a NaN in `b` stays.
    unsafe fn min(a: Self::Vector, b: Self::Vector) -> Self::Vector;

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

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64 as arch;

    /// AVX2 and FMA.
    pub(crate) struct Avx2;

    /// AVX-512 F.
    pub(crate) struct Avx512;

    macro_rules! lanes {
        ($level:ty, $count:literal, $vector:ty, $splat:ident, $load:ident, $store:ident,
         $add:ident, $multiply_add:ident, $max:ident, $min:ident) => {
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
                unsafe fn multiply_add(a: $vector, b: $vector, c: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { arch::$multiply_add(a, b, c) }
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
        _mm256_fmadd_ps,
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
        _mm512_fmadd_ps,
        _mm512_max_ps,
        _mm512_min_ps
    );
}
