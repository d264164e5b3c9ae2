//! Exponential, logarithm, hyperbolic tangent, error function, sine: own polynomials, so that
//! results don't depend on the system's math library.
//!
//! Relative errors stay below 2e-7 (measured by the tests). The polynomials are
//! least-squares fits reweighted to a level error (Lawson 1961), in Cody and Waite's ranges.
//! The functions are branch-free, so that a loop over them vectorises, and inlined into bodies of
//! `dispatch!`.

use std::f32::consts::LOG2_E;

use crate::simd::Isa;

/// Adding this rounds a float below 2^22 to an integer, held in the low bits.
const ROUND: f32 = 12_582_912.0;
/// `ln 2` in two parts, the first short enough that small multiples of it are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// `c[0] + c[1] x + c[2] x^2 + ...`
#[inline(always)]
fn polynomial<I: Isa, const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut sum = c[N - 1];
    for i in (0..N - 1).rev() {
        sum = I::fma(sum, x, c[i]);
    }
    sum
}

/// `e^x`; 0 below -103.97, infinity above 88.72, NaN for NaN.
#[inline(always)]
pub(crate) fn exp<I: Isa>(x: f32) -> f32 {
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = I::fma(x, LOG2_E, ROUND);
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let k = shifted - ROUND;
    let r = I::fma(k, -LN_2_LOW, I::fma(k, -LN_2_HIGH, x));
    let p = polynomial::<I, 5>(
        r,
        [
            0.499_999_94,
            0.166_665_21,
            0.041_668_39,
            0.008_368_717,
            0.001_381_459_9,
        ],
    );
    let mantissa = I::fma(p * r, r, r) + 1.0;
    // Twice half the exponent, as 2^128 and 2^-150 are no normal floats.
    let half = exponent >> 1;
    mantissa * power_of_two(half) * power_of_two(exponent.wrapping_sub(half))
}

/// `2^n` for `n` in -126 to 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `ln x` for normal, positive, finite `x`.
#[inline(always)]
pub(crate) fn ln<I: Isa>(x: f32) -> f32 {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    const ONE: u32 = 0x3f80_0000;
    let bits = x.to_bits().wrapping_add(ONE - SQRT_HALF);
    let exponent = (bits >> 23) as i32 - 127;
    let mantissa = f32::from_bits((bits & 0x007f_ffff) + SQRT_HALF);
    let f = mantissa - 1.0;
    let p = polynomial::<I, 8>(
        f,
        [
            0.333_333_3,
            -0.250_008_2,
            0.200_012_27,
            -0.166_233_57,
            0.142_017_57,
            -0.131_601_83,
            0.127_615_76,
            -0.076_344_97,
        ],
    );
    let square = f * f;
    let tail = I::fma(p * f, square, -0.5 * square);
    let e = exponent as f32;
    I::fma(e, LN_2_HIGH, f + I::fma(e, LN_2_LOW, tail))
}

/// `ln x` of a positive, normal, finite `x`, in double precision: one a row, where the row was
/// summed. NaN for NaN.
pub(crate) fn ln_f64(x: f64) -> f64 {
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    if x.is_nan() {
        return x;
    }
    let bits = x.to_bits().wrapping_add(ONE - SQRT_HALF);
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) + SQRT_HALF);
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (1..=10)
        .rev()
        .fold(0.0, |sum, n| (sum + 1.0 / f64::from(2 * n + 1)) * square);
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * s * (1.0 + series)
}

/// `tanh x`; NaN for NaN.
#[inline(always)]
pub(crate) fn tanh<I: Isa>(x: f32) -> f32 {
    let square = x * x;
    let p = polynomial::<I, 5>(
        square,
        [
            -0.333_332_8,
            0.133_314_42,
            -0.053_739_715,
            0.020_639_086,
            -0.005_704_987,
        ],
    );
    let small = I::fma(p * square, x, x);
    let large = 1.0 - 2.0 / (exp::<I>(2.0 * x.abs()) + 1.0);
    if x.abs() < 0.625 {
        small
    } else {
        large.copysign(x)
    }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<I: Isa>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<I>(-x))
}

/// `2 / sqrt(pi) * integral of e^(-t^2) from 0 to x`; NaN for NaN.
#[inline(always)]
pub(crate) fn erf<I: Isa>(x: f32) -> f32 {
    let square = x * x;
    let p = polynomial::<I, 6>(
        square,
        [
            0.128_379_15,
            -0.376_124_8,
            0.112_816_826,
            -0.026_761_72,
            0.004_985_940_6,
            -5.953_741_5e-4,
        ],
    );
    let small = I::fma(p, x, x);
    // erf is 1 in single precision from 3.92 on; the fit of ln erfc ends at 4.
    let t = if x.abs() > 4.0 { 4.0 } else { x.abs() };
    let log_erfc = polynomial::<I, 7>(
        t,
        [
            -2.070_173e-4,
            -0.127_627_36,
            -0.637_265_8,
            -0.103_856_31,
            0.022_189_744,
            -0.003_033_683_4,
            1.949_457_7e-4,
        ],
    ) - t;
    let large = 1.0 - exp::<I>(log_erfc);
    if x.abs() < 0.925 {
        small
    } else {
        large.copysign(x)
    }
}

/// `(sin 2 pi turns, cos 2 pi turns)` for `turns` in 0 to 1.
#[inline(always)]
pub(crate) fn sin_cos_turns<I: Isa>(turns: f32) -> (f32, f32) {
    let quarters = 4.0 * turns;
    let shifted = quarters + ROUND;
    let quadrant = shifted.to_bits();
    let z = quarters - (shifted - ROUND);
    let square = z * z;
    let sin = z * polynomial::<I, 5>(
        square,
        [
            std::f32::consts::FRAC_PI_2,
            -0.645_964_1,
            0.079_692_58,
            -0.004_681_266_4,
            1.582_067_3e-4,
        ],
    );
    let cos = polynomial::<I, 5>(
        square,
        [1.0, -1.233_700_5, 0.253_669_2, -0.020_860_072, 9.036_317e-4],
    );
    let (sin, cos) = if quadrant & 1 == 0 {
        (sin, cos)
    } else {
        (cos, sin)
    };
    let sin = if quadrant & 2 == 0 { sin } else { -sin };
    let cos = if (quadrant + 1) & 2 == 0 { cos } else { -cos };
    (sin, cos)
}
