//! Registers of whole numbers in the places of floats: pairs of 16 bits or fours of 8 that are multiplied, and sums of 32 bits.
//!
//! The loops of floats serve for whole numbers as well: `Pairs` multiplies pairs of numbers and adds both products to a
//! 32-bit sum, `Fours` numbers from 0 to 255 with ones from -128 to 127, `Halves` adds and subtracts 16-bit numbers. All are
//! exact as long as nothing overflows.

use super::Lanes;

/// Registers of pairs of 16-bit numbers to multiply; everything else is done to 32-bit sums.
pub(crate) struct PortablePairsOfIntegers;

/// Registers of fours of 8-bit numbers to multiply, without a sign and with one; everything else is done to 32-bit sums.
pub(crate) struct PortableFours;

/// Registers of twice as many 16-bit numbers.
pub(crate) struct PortableHalves;

/// The two 16-bit numbers of a word.
fn halves(word: f32) -> [i32; 2] {
    let bits = word.to_bits();
    [
        i32::from(bits as u16 as i16),
        i32::from((bits >> 16) as i16),
    ]
}

/// A word of two 16-bit numbers, of which the lowest bits are kept.
fn word([first, second]: [i32; 2]) -> f32 {
    f32::from_bits(first as u32 & 0xffff | (second as u32) << 16)
}

fn sum(word: f32) -> i32 {
    word.to_bits().cast_signed()
}

fn from_sum(sum: i32) -> f32 {
    f32::from_bits(sum.cast_unsigned())
}

fn each_sum(a: [f32; 8], b: [f32; 8], f: impl Fn(i32, i32) -> i32) -> [f32; 8] {
    std::array::from_fn(|lane| from_sum(f(sum(a[lane]), sum(b[lane]))))
}

fn each_half(a: [f32; 8], b: [f32; 8], f: impl Fn(i32, i32) -> i32) -> [f32; 8] {
    std::array::from_fn(|lane| {
        let (a, b) = (halves(a[lane]), halves(b[lane]));
        word([f(a[0], b[0]), f(a[1], b[1])])
    })
}

macro_rules! portable {
    ($name:ident, $each:ident, $multiply_add:expr) => {
        impl Lanes for $name {
            const COUNT: usize = 8;
            type Vector = [f32; 8];

            #[inline(always)]
            unsafe fn splat(value: f32) -> [f32; 8] {
                [value; 8]
            }

            #[inline(always)]
            unsafe fn load(from: *const f32) -> [f32; 8] {
                // SAFETY: the caller's pointer is valid for eight words.
                unsafe { from.cast::<[f32; 8]>().read_unaligned() }
            }

            #[inline(always)]
            unsafe fn store(to: *mut f32, value: [f32; 8]) {
                // SAFETY: the caller's pointer is valid for eight words.
                unsafe { to.cast::<[f32; 8]>().write_unaligned(value) }
            }

            #[inline(always)]
            unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
                $each(a, b, i32::wrapping_add)
            }

            #[inline(always)]
            unsafe fn sub(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
                $each(a, b, i32::wrapping_sub)
            }

            #[inline(always)]
            unsafe fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
                $each(a, b, i32::wrapping_mul)
            }

            #[inline(always)]
            unsafe fn multiply_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
                $multiply_add(a, b, c)
            }

            #[inline(always)]
            unsafe fn max(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
                $each(a, b, i32::max)
            }

            #[inline(always)]
            unsafe fn min(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
                $each(a, b, i32::min)
            }
        }
    };
}

portable!(PortablePairsOfIntegers, each_sum, |a: [f32; 8],
                                              b: [f32; 8],
                                              c: [f32; 8]|
 -> [f32; 8] {
    std::array::from_fn(|lane| {
        let (a, b) = (halves(a[lane]), halves(b[lane]));
        from_sum(sum(c[lane]).wrapping_add(a[0] * b[0] + a[1] * b[1]))
    })
});
portable!(PortableFours, each_sum, |a: [f32; 8],
                                    b: [f32; 8],
                                    c: [f32; 8]|
 -> [f32; 8] {
    std::array::from_fn(|lane| {
        let (a, b) = (
            a[lane].to_bits().to_le_bytes(),
            b[lane].to_bits().to_le_bytes(),
        );
        let products = a.iter().zip(b);
        let products = products.map(|(&a, b)| i32::from(a) * i32::from(b.cast_signed()));
        from_sum(products.fold(sum(c[lane]), i32::wrapping_add))
    })
});
portable!(PortableHalves, each_half, |a: [f32; 8],
                                      b: [f32; 8],
                                      c: [f32; 8]|
 -> [f32; 8] {
    let products = each_half(a, b, i32::wrapping_mul);
    each_half(products, c, i32::wrapping_add)
});

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{
    Avx2Halves, Avx2Pairs, Avx512Halves, Avx512Pairs, Avx512Vnni, Avx512VnniFours,
};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64 as arch;

    /// As [`super::PortablePairsOfIntegers`], with AVX2.
    pub(crate) struct Avx2Pairs;

    /// As [`super::PortableHalves`], with AVX2.
    pub(crate) struct Avx2Halves;

    /// As [`super::PortablePairsOfIntegers`], with AVX-512 BW.
    pub(crate) struct Avx512Pairs;

    /// As [`Avx512Pairs`], with the one instruction of AVX-512 VNNI.
    pub(crate) struct Avx512Vnni;

    /// As [`super::PortableFours`], with the one instruction of AVX-512 VNNI.
    pub(crate) struct Avx512VnniFours;

    /// As [`super::PortableHalves`], with AVX-512 BW.
    pub(crate) struct Avx512Halves;

    macro_rules! lanes {
        ($level:ty, $count:literal, $vector:ty, $splat:ident, $load:ident, $store:ident, $in:ident, $out:ident,
         $add:ident, $sub:ident, $mul:ident, $max:ident, $min:ident, |$a:ident, $b:ident, $c:ident| $multiply_add:expr) => {
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
                    unsafe { arch::$out(arch::$add(arch::$in(a), arch::$in(b))) }
                }

                #[inline(always)]
                unsafe fn sub(a: $vector, b: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { arch::$out(arch::$sub(arch::$in(a), arch::$in(b))) }
                }

                #[inline(always)]
                unsafe fn mul(a: $vector, b: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { arch::$out(arch::$mul(arch::$in(a), arch::$in(b))) }
                }

                #[inline(always)]
                unsafe fn multiply_add(a: $vector, b: $vector, c: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe {
                        let ($a, $b, $c) = (arch::$in(a), arch::$in(b), arch::$in(c));
                        arch::$out($multiply_add)
                    }
                }

                #[inline(always)]
                unsafe fn max(a: $vector, b: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { arch::$out(arch::$max(arch::$in(a), arch::$in(b))) }
                }

                #[inline(always)]
                unsafe fn min(a: $vector, b: $vector) -> $vector {
                    // SAFETY: the caller promises that the CPU has the instruction.
                    unsafe { arch::$out(arch::$min(arch::$in(a), arch::$in(b))) }
                }
            }
        };
    }

    /// The two widths, of sums or of halves.
    macro_rules! avx2 {
        ($level:ty, $($operation:tt)+) => {
            lanes!($level, 8, arch::__m256, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps,
                _mm256_castps_si256, _mm256_castsi256_ps, $($operation)+);
        };
    }
    macro_rules! avx512 {
        ($level:ty, $($operation:tt)+) => {
            lanes!($level, 16, arch::__m512, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps,
                _mm512_castps_si512, _mm512_castsi512_ps, $($operation)+);
        };
    }

    avx2!(
        Avx2Pairs,
        _mm256_add_epi32,
        _mm256_sub_epi32,
        _mm256_mullo_epi32,
        _mm256_max_epi32,
        _mm256_min_epi32,
        |a, b, c| arch::_mm256_add_epi32(arch::_mm256_madd_epi16(a, b), c)
    );
    avx2!(
        Avx2Halves,
        _mm256_add_epi16,
        _mm256_sub_epi16,
        _mm256_mullo_epi16,
        _mm256_max_epi16,
        _mm256_min_epi16,
        |a, b, c| arch::_mm256_add_epi16(arch::_mm256_mullo_epi16(a, b), c)
    );
    avx512!(
        Avx512Pairs,
        _mm512_add_epi32,
        _mm512_sub_epi32,
        _mm512_mullo_epi32,
        _mm512_max_epi32,
        _mm512_min_epi32,
        |a, b, c| arch::_mm512_add_epi32(arch::_mm512_madd_epi16(a, b), c)
    );
    avx512!(
        Avx512Vnni,
        _mm512_add_epi32,
        _mm512_sub_epi32,
        _mm512_mullo_epi32,
        _mm512_max_epi32,
        _mm512_min_epi32,
        |a, b, c| arch::_mm512_dpwssd_epi32(c, a, b)
    );
    avx512!(
        Avx512VnniFours,
        _mm512_add_epi32,
        _mm512_sub_epi32,
        _mm512_mullo_epi32,
        _mm512_max_epi32,
        _mm512_min_epi32,
        |a, b, c| arch::_mm512_dpbusd_epi32(c, a, b)
    );
    avx512!(
        Avx512Halves,
        _mm512_add_epi16,
        _mm512_sub_epi16,
        _mm512_mullo_epi16,
        _mm512_max_epi16,
        _mm512_min_epi16,
        |a, b, c| arch::_mm512_add_epi16(arch::_mm512_mullo_epi16(a, b), c)
    );
}
