//! [`Isa`] in AVX2 and in AVX-512 instructions.

use std::arch::x86_64::*;

use super::{Isa, LANES};

/// [`Level::Avx2`](super::Level::Avx2): 8 floats a register.
pub(crate) struct Avx2;

// SAFETY of every `unsafe` block in this implementation: `dispatch!` uses `Avx2` only in a body
// that it compiles for, and runs on, a CPU with AVX2 and FMA; loads and stores are unaligned ones
// within an array of LANES elements.
impl Isa for Avx2 {
    const FMA: bool = true;
    type Floats = [__m256; 2];
    type Sums = [__m256d; 4];

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            [
                _mm256_loadu_ps(x.as_ptr()),
                _mm256_loadu_ps(x.as_ptr().add(8)),
            ]
        }
    }

    #[inline(always)]
    fn load_rest(x: &[f32]) -> [__m256; 2] {
        /// Read from `LANES - len` on: `len` lanes to load, then lanes to leave.
        const MASKS: [i32; 2 * LANES] = {
            let mut masks = [0; 2 * LANES];
            let mut lane = 0;
            while lane < LANES {
                masks[lane] = -1;
                lane += 1;
            }
            masks
        };
        let len = x.len().min(LANES);
        // SAFETY: see above; LANES masks from LANES - len on lie in the table. Only elements whose
        // mask is set are read from `x`, and a wrapping pointer to others may lie anywhere.
        unsafe {
            let masks = MASKS.as_ptr().add(LANES - len).cast::<__m256i>();
            let (low, high) = (_mm256_loadu_si256(masks), _mm256_loadu_si256(masks.add(1)));
            let x = x.as_ptr();
            [
                _mm256_maskload_ps(x, low),
                _mm256_maskload_ps(x.wrapping_add(8), high),
            ]
        }
    }

    #[inline(always)]
    fn splat(value: f32) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    fn floats(x: [__m256; 2]) -> [f32; LANES] {
        let mut y = [0.0; LANES];
        // SAFETY: see above.
        unsafe {
            _mm256_storeu_ps(y.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(y.as_mut_ptr().add(8), x[1]);
        }
        y
    }

    #[inline(always)]
    fn sub(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn add(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn div(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn min(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn from_sums(x: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            [
                _mm256_cvtepi32_ps(_mm256_castps_si256(x[0])),
                _mm256_cvtepi32_ps(_mm256_castps_si256(x[1])),
            ]
        }
    }

    #[inline(always)]
    fn from_halves(x: &[i16; LANES]) -> [__m256; 2] {
        // SAFETY: see above; each load reads half of the array.
        unsafe {
            let x = x.as_ptr().cast::<__m128i>();
            let (low, high) = (_mm_loadu_si128(x), _mm_loadu_si128(x.add(1)));
            [
                _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(low)),
                _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(high)),
            ]
        }
    }

    #[inline(always)]
    fn to_halves(x: [__m256; 2]) -> [i16; LANES] {
        let mut y = [0; LANES];
        // SAFETY: see above. Packing leaves the halves of both registers side by side.
        unsafe {
            let packed = _mm256_packs_epi32(_mm256_cvtps_epi32(x[0]), _mm256_cvtps_epi32(x[1]));
            let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
            _mm256_storeu_si256(y.as_mut_ptr().cast(), ordered);
        }
        y
    }

    #[inline(always)]
    fn mul(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn max(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn transpose_8x8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: the CPU has AVX, see above; the rows are valid as the caller promises.
        unsafe { transpose_8x8(from, from_stride, to, to_stride) }
    }

    #[inline(always)]
    fn zero() -> [__m256d; 4] {
        // SAFETY: see above.
        unsafe { [_mm256_setzero_pd(); 4] }
    }

    #[inline(always)]
    fn accumulate(sums: [__m256d; 4], x: [__m256; 2]) -> [__m256d; 4] {
        let [x0, x1, x2, x3] = widen_avx2(x);
        let [s0, s1, s2, s3] = sums;
        // SAFETY: see above. No closures: intrinsics aren't inlined into them.
        unsafe {
            [
                _mm256_add_pd(s0, x0),
                _mm256_add_pd(s1, x1),
                _mm256_add_pd(s2, x2),
                _mm256_add_pd(s3, x3),
            ]
        }
    }

    #[inline(always)]
    fn accumulate_product(sums: [__m256d; 4], a: [__m256; 2], b: [__m256; 2]) -> [__m256d; 4] {
        let [a0, a1, a2, a3] = widen_avx2(a);
        let [b0, b1, b2, b3] = widen_avx2(b);
        let [s0, s1, s2, s3] = sums;
        // SAFETY: see above.
        unsafe {
            [
                _mm256_fmadd_pd(a0, b0, s0),
                _mm256_fmadd_pd(a1, b1, s1),
                _mm256_fmadd_pd(a2, b2, s2),
                _mm256_fmadd_pd(a3, b3, s3),
            ]
        }
    }

    #[inline(always)]
    fn sums(sums: [__m256d; 4]) -> [f64; LANES] {
        let mut y = [0.0; LANES];
        for (y, sum) in y.as_chunks_mut::<4>().0.iter_mut().zip(sums) {
            // SAFETY: see above; `y` is 4 elements long.
            unsafe { _mm256_storeu_pd(y.as_mut_ptr(), sum) };
        }
        y
    }
}

/// See [`Isa::transpose_8x8`]: pairs of lanes, then pairs of pairs, then halves of registers change places.
#[inline(always)]
unsafe fn transpose_8x8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    // SAFETY: only called by the levels that have AVX, on rows that are valid.
    unsafe {
        let mut rows = [_mm256_setzero_ps(); 8];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = _mm256_loadu_ps(from.add(i * from_stride));
        }
        let mut pairs = rows;
        for i in [0, 2, 4, 6] {
            pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
            pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
        }
        let mut fours = pairs;
        for i in [0, 4] {
            fours[i] = _mm256_shuffle_ps::<0b01_00_01_00>(pairs[i], pairs[i + 2]);
            fours[i + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(pairs[i], pairs[i + 2]);
            fours[i + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(pairs[i + 1], pairs[i + 3]);
            fours[i + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(pairs[i + 1], pairs[i + 3]);
        }
        for i in 0..4 {
            let low = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
            let high = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
            _mm256_storeu_ps(to.add(i * to_stride), low);
            _mm256_storeu_ps(to.add((i + 4) * to_stride), high);
        }
    }
}

#[inline(always)]
fn widen_avx2(x: [__m256; 2]) -> [__m256d; 4] {
    // SAFETY: only called by `Avx2`, whose SAFETY comment holds.
    unsafe {
        [
            _mm256_cvtps_pd(_mm256_castps256_ps128(x[0])),
            _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x[0])),
            _mm256_cvtps_pd(_mm256_castps256_ps128(x[1])),
            _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x[1])),
        ]
    }
}

/// [`Level::Avx512`](super::Level::Avx512): 16 floats a register.
pub(crate) struct Avx512;

// SAFETY of every `unsafe` block in this implementation: `dispatch!` uses `Avx512` only in a body
// that it compiles for, and runs on, a CPU with AVX-512 F, BW, DQ and VL; loads and stores are
// unaligned ones within an array of LANES elements.
impl Isa for Avx512 {
    const FMA: bool = true;
    type Floats = __m512;
    type Sums = [__m512d; 2];

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn load_rest(x: &[f32]) -> __m512 {
        let mask = ((1u32 << x.len().min(LANES)) - 1) as __mmask16;
        // SAFETY: see above; only elements whose mask is set are read.
        unsafe { _mm512_maskz_loadu_ps(mask, x.as_ptr()) }
    }

    #[inline(always)]
    fn splat(value: f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn floats(x: __m512) -> [f32; LANES] {
        let mut y = [0.0; LANES];
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(y.as_mut_ptr(), x) };
        y
    }

    #[inline(always)]
    fn sub(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn div(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn min(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn from_sums(x: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi32_ps(_mm512_castps_si512(x)) }
    }

    #[inline(always)]
    fn from_halves(x: &[i16; LANES]) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let x = _mm256_loadu_si256(x.as_ptr().cast());
            _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(x))
        }
    }

    #[inline(always)]
    fn to_halves(x: __m512) -> [i16; LANES] {
        let mut y = [0; LANES];
        // SAFETY: see above.
        unsafe {
            let numbers = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x));
            _mm256_storeu_si256(y.as_mut_ptr().cast(), numbers);
        }
        y
    }

    #[inline(always)]
    fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn max(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn transpose_8x8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: the CPU has AVX, see above; the rows are valid as the caller promises.
        unsafe { transpose_8x8(from, from_stride, to, to_stride) }
    }

    #[inline(always)]
    fn zero() -> [__m512d; 2] {
        // SAFETY: see above.
        unsafe { [_mm512_setzero_pd(); 2] }
    }

    #[inline(always)]
    fn accumulate(sums: [__m512d; 2], x: __m512) -> [__m512d; 2] {
        let x = widen_avx512(x);
        // SAFETY: see above.
        unsafe { [_mm512_add_pd(sums[0], x[0]), _mm512_add_pd(sums[1], x[1])] }
    }

    #[inline(always)]
    fn accumulate_product(sums: [__m512d; 2], a: __m512, b: __m512) -> [__m512d; 2] {
        let (a, b) = (widen_avx512(a), widen_avx512(b));
        // SAFETY: see above.
        unsafe {
            [
                _mm512_fmadd_pd(a[0], b[0], sums[0]),
                _mm512_fmadd_pd(a[1], b[1], sums[1]),
            ]
        }
    }

    #[inline(always)]
    fn sums(sums: [__m512d; 2]) -> [f64; LANES] {
        let mut y = [0.0; LANES];
        // SAFETY: see above.
        unsafe {
            _mm512_storeu_pd(y.as_mut_ptr(), sums[0]);
            _mm512_storeu_pd(y.as_mut_ptr().add(8), sums[1]);
        }
        y
    }
}

#[inline(always)]
fn widen_avx512(x: __m512) -> [__m512d; 2] {
    // SAFETY: only called by `Avx512`, whose SAFETY comment holds.
    unsafe {
        [
            _mm512_cvtps_pd(_mm512_castps512_ps256(x)),
            _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(x)),
        ]
    }
}
