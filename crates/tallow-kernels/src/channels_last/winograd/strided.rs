//! The one-dimensional transforms for stride 2, made of those of F(m, 2).
//!
//! With stride 2, even inputs meet the outer two weights and odd inputs the middle one:
//! `y[i] = w0 x[2i] + w2 x[2i + 2] + w1 x[2i + 1]`. The first two terms are a convolution of the even inputs with two
//! weights, found from `m + 1` points; the third is a product for each output, points whose transforms do nothing and
//! whose weights are the same. A tile has all these points, `2m + 1`, in each dimension.
//!
//! The data gradient reads a tile of gradients once, for both kinds of pixels: with the weights turned,
//! `dx[2j] = w1 dy[j]` and `dx[2j + 1] = w0 dy[j] + w2 dy[j + 1]`, where pixel 0 is an odd one of the padded image.

#![allow(
    clippy::needless_range_loop,
    reason = "indices are those of the formulas"
)]

use super::transform::{Gradient, Sizes, Transform};
use crate::registers::Lanes;
use std::marker::PhantomData;

/// F(M, 2), with `N = M + 1` points.
///
/// # Safety
/// As for [`Lanes`]: the CPU must have the level.
pub(super) trait TwoTaps<const M: usize, const N: usize> {
    /// `Bᵀ`, from inputs to points.
    unsafe fn input<L: Lanes>(x: [L::Vector; N]) -> [L::Vector; N];
    /// `Aᵀ`, from points to outputs.
    unsafe fn output<L: Lanes>(m: [L::Vector; N]) -> [L::Vector; M];
    /// `A`, from gradients of the outputs to points.
    unsafe fn gradient<L: Lanes>(dy: [L::Vector; M]) -> [L::Vector; N];
    /// `G`, from two weights to points.
    unsafe fn weight<L: Lanes>(w: [L::Vector; 2]) -> [L::Vector; N];
    /// `Gᵀ`, from points to gradients of two weights.
    unsafe fn weight_gradient<L: Lanes>(m: [L::Vector; N]) -> [L::Vector; 2];
}

/// F(2, 2): the points 0, 1 and infinity.
pub(super) struct TwoOfTwo;

impl TwoTaps<2, 3> for TwoOfTwo {
    #[inline(always)]
    unsafe fn input<L: Lanes>([a, b, c]: [L::Vector; 3]) -> [L::Vector; 3] {
        // SAFETY: the caller has the level.
        unsafe { [L::sub(a, b), b, L::sub(c, b)] }
    }

    #[inline(always)]
    unsafe fn output<L: Lanes>([a, b, c]: [L::Vector; 3]) -> [L::Vector; 2] {
        // SAFETY: the caller has the level.
        unsafe { [L::add(a, b), L::add(b, c)] }
    }

    #[inline(always)]
    unsafe fn gradient<L: Lanes>([a, b]: [L::Vector; 2]) -> [L::Vector; 3] {
        // SAFETY: the caller has the level.
        unsafe { [a, L::add(a, b), b] }
    }

    #[inline(always)]
    unsafe fn weight<L: Lanes>([a, b]: [L::Vector; 2]) -> [L::Vector; 3] {
        // SAFETY: the caller has the level.
        unsafe { [a, L::add(a, b), b] }
    }

    #[inline(always)]
    unsafe fn weight_gradient<L: Lanes>([a, b, c]: [L::Vector; 3]) -> [L::Vector; 2] {
        // SAFETY: the caller has the level.
        unsafe { [L::add(a, b), L::add(b, c)] }
    }
}

/// F(4, 2): the points ±2/5, ±5/4 and infinity.
///
/// Of pairs of points and their negatives, whose transforms share sums, those with the smallest error: two thirds of
/// that with ±sqrt(1/2) and ±sqrt(2), half of that with 0, ±1 and 2.
pub(super) struct FourOfTwo;

/// The points of [`FourOfTwo`], and their squares.
const SMALL: f32 = 0.4;
const LARGE: f32 = 1.25;
const SMALL_SQUARE: f32 = SMALL * SMALL;
const LARGE_SQUARE: f32 = LARGE * LARGE;

/// The factor of all Lagrange polynomials of [`FourOfTwo`], which its weights take.
const SCALE: f32 = 0.5 / (LARGE_SQUARE - SMALL_SQUARE);

impl TwoTaps<4, 5> for FourOfTwo {
    #[inline(always)]
    unsafe fn input<L: Lanes>(x: [L::Vector; 5]) -> [L::Vector; 5] {
        // SAFETY: the caller has the level.
        unsafe {
            let square = L::splat(LARGE_SQUARE);
            let even = L::sub(L::mul(x[0], square), x[2]);
            let odd = L::sub(L::mul(x[1], square), x[3]);
            let small = L::multiply_add(odd, L::splat(1.0 / SMALL), even);
            let minus_small = L::multiply_add(odd, L::splat(-1.0 / SMALL), even);
            let square = L::splat(-SMALL_SQUARE);
            let even = L::multiply_add(x[0], square, x[2]);
            let odd = L::multiply_add(x[1], square, x[3]);
            let large = L::multiply_add(odd, L::splat(1.0 / LARGE), even);
            let minus_large = L::multiply_add(odd, L::splat(-1.0 / LARGE), even);
            let infinity = L::multiply_add(x[0], L::splat(SMALL_SQUARE * LARGE_SQUARE), x[4]);
            let both = L::splat(-SMALL_SQUARE - LARGE_SQUARE);
            let infinity = L::multiply_add(x[2], both, infinity);
            [small, minus_small, large, minus_large, infinity]
        }
    }

    #[inline(always)]
    unsafe fn output<L: Lanes>(m: [L::Vector; 5]) -> [L::Vector; 4] {
        // SAFETY: the caller has the level.
        unsafe {
            let (small_sum, small) = (L::add(m[0], m[1]), L::sub(m[0], m[1]));
            let (large_sum, large) = (L::add(m[2], m[3]), L::sub(m[2], m[3]));
            let y0 = L::add(small_sum, large_sum);
            let y1 = L::multiply_add(large, L::splat(LARGE), L::mul(small, L::splat(SMALL)));
            let y2 = L::mul(small_sum, L::splat(SMALL_SQUARE));
            let y2 = L::multiply_add(large_sum, L::splat(LARGE_SQUARE), y2);
            let y3 = L::multiply_add(small, L::splat(SMALL * SMALL_SQUARE), m[4]);
            let y3 = L::multiply_add(large, L::splat(LARGE * LARGE_SQUARE), y3);
            [y0, y1, y2, y3]
        }
    }

    #[inline(always)]
    unsafe fn gradient<L: Lanes>(dy: [L::Vector; 4]) -> [L::Vector; 5] {
        // SAFETY: the caller has the level.
        unsafe {
            let square = L::splat(SMALL_SQUARE);
            let even = L::multiply_add(dy[2], square, dy[0]);
            let odd = L::multiply_add(dy[3], square, dy[1]);
            let small = L::multiply_add(odd, L::splat(SMALL), even);
            let minus_small = L::multiply_add(odd, L::splat(-SMALL), even);
            let square = L::splat(LARGE_SQUARE);
            let even = L::multiply_add(dy[2], square, dy[0]);
            let odd = L::multiply_add(dy[3], square, dy[1]);
            let large = L::multiply_add(odd, L::splat(LARGE), even);
            let minus_large = L::multiply_add(odd, L::splat(-LARGE), even);
            [small, minus_small, large, minus_large, dy[3]]
        }
    }

    #[inline(always)]
    unsafe fn weight<L: Lanes>([a, b]: [L::Vector; 2]) -> [L::Vector; 5] {
        // SAFETY: the caller has the level.
        unsafe {
            let scaled = L::mul(a, L::splat(SCALE));
            let small = L::multiply_add(b, L::splat(SCALE * SMALL), scaled);
            let minus_small = L::multiply_add(b, L::splat(-SCALE * SMALL), scaled);
            let large = L::multiply_add(b, L::splat(SCALE * LARGE), scaled);
            let minus_large = L::multiply_add(b, L::splat(-SCALE * LARGE), scaled);
            [small, minus_small, large, minus_large, b]
        }
    }

    #[inline(always)]
    unsafe fn weight_gradient<L: Lanes>(m: [L::Vector; 5]) -> [L::Vector; 2] {
        // SAFETY: the caller has the level.
        unsafe {
            let (small_sum, small) = (L::add(m[0], m[1]), L::sub(m[0], m[1]));
            let (large_sum, large) = (L::add(m[2], m[3]), L::sub(m[2], m[3]));
            let a = L::mul(L::add(small_sum, large_sum), L::splat(SCALE));
            let b = L::multiply_add(small, L::splat(SCALE * SMALL), m[4]);
            let b = L::multiply_add(large, L::splat(SCALE * LARGE), b);
            [a, b]
        }
    }
}

/// Stride 2 forward, `P = 2M + 1` points: those of `F`, then one an odd input.
pub(super) struct Strided<F, const M: usize, const N: usize>(PhantomData<F>);

pub(super) type StridedTwo = Strided<TwoOfTwo, 2, 3>;
pub(super) type StridedFour = Strided<FourOfTwo, 4, 5>;

impl<F: TwoTaps<M, N>, const M: usize, const N: usize, const P: usize> Transform<P>
    for Strided<F, M, N>
{
    const SIZES: Sizes = Sizes {
        inputs: 2 * M + 1,
        outputs: M,
        points: 2 * M + 1,
        weights: N + 1,
    };

    #[inline(always)]
    unsafe fn input<L: Lanes>(x: [L::Vector; P]) -> [L::Vector; P] {
        // SAFETY: the caller has the level.
        unsafe {
            let mut even = [x[0]; N];
            for i in 0..N {
                even[i] = x[2 * i];
            }
            let even = F::input::<L>(even);
            let mut points = x;
            points[..N].copy_from_slice(&even);
            for i in 0..M {
                points[N + i] = x[2 * i + 1];
            }
            points
        }
    }

    #[inline(always)]
    unsafe fn output<L: Lanes>(m: [L::Vector; P]) -> [L::Vector; P] {
        // SAFETY: the caller has the level.
        unsafe {
            let sums = F::output::<L>(first(m));
            let mut outputs = m;
            for i in 0..M {
                outputs[i] = L::add(sums[i], m[N + i]);
            }
            outputs
        }
    }

    #[inline(always)]
    unsafe fn weight<L: Lanes>(w: [L::Vector; P]) -> [L::Vector; P] {
        // SAFETY: the caller has the level.
        unsafe { weight::<L, F, M, N, P>(w) }
    }
}

impl<F: TwoTaps<M, N>, const M: usize, const N: usize, const P: usize> Gradient<P>
    for Strided<F, M, N>
{
    #[inline(always)]
    unsafe fn gradient<L: Lanes>(dy: [L::Vector; P]) -> [L::Vector; P] {
        // SAFETY: the caller has the level.
        unsafe {
            let even = F::gradient::<L>(first(dy));
            let mut points = dy;
            points[..N].copy_from_slice(&even);
            points[N..].copy_from_slice(&dy[..M]);
            points
        }
    }

    #[inline(always)]
    unsafe fn weight_gradient<L: Lanes>(m: [L::Vector; P]) -> [L::Vector; P] {
        // SAFETY: the caller has the level.
        unsafe {
            let [outer, last] = F::weight_gradient::<L>(first(m));
            let mut taps = m;
            (taps[0], taps[1], taps[2]) = (outer, m[N], last);
            taps
        }
    }
}

/// The data gradient of stride 2, with the points of [`Strided`] and weights that were turned.
pub(super) struct Transposed<F, const M: usize, const N: usize>(PhantomData<F>);

pub(super) type TransposedTwo = Transposed<TwoOfTwo, 2, 3>;
pub(super) type TransposedFour = Transposed<FourOfTwo, 4, 5>;

impl<F: TwoTaps<M, N>, const M: usize, const N: usize, const P: usize> Transform<P>
    for Transposed<F, M, N>
{
    const SIZES: Sizes = Sizes {
        inputs: N,
        outputs: 2 * M,
        points: 2 * M + 1,
        weights: N + 1,
    };

    #[inline(always)]
    unsafe fn input<L: Lanes>(x: [L::Vector; P]) -> [L::Vector; P] {
        // SAFETY: the caller has the level.
        unsafe {
            let outer = F::input::<L>(first(x));
            let mut points = x;
            points[..N].copy_from_slice(&outer);
            points[N..].copy_from_slice(&x[..M]);
            points
        }
    }

    #[inline(always)]
    unsafe fn output<L: Lanes>(m: [L::Vector; P]) -> [L::Vector; P] {
        // SAFETY: the caller has the level.
        unsafe {
            let sums = F::output::<L>(first(m));
            let mut outputs = m;
            for i in 0..M {
                outputs[2 * i] = m[N + i];
                outputs[2 * i + 1] = sums[i];
            }
            outputs
        }
    }

    #[inline(always)]
    unsafe fn weight<L: Lanes>(w: [L::Vector; P]) -> [L::Vector; P] {
        // SAFETY: the caller has the level.
        unsafe { weight::<L, F, M, N, P>(w) }
    }
}

/// The weights of the points of `F`, then that of the others.
#[inline(always)]
unsafe fn weight<L: Lanes, F: TwoTaps<M, N>, const M: usize, const N: usize, const P: usize>(
    w: [L::Vector; P],
) -> [L::Vector; P] {
    // SAFETY: the caller has the level.
    unsafe {
        let mut points = w;
        points[..N].copy_from_slice(&F::weight::<L>([w[0], w[2]]));
        points[N] = w[1];
        points
    }
}

/// The first values of a longer array.
#[inline(always)]
fn first<V: Copy, const N: usize, const P: usize>(values: [V; P]) -> [V; N] {
    let mut some = [values[0]; N];
    some.copy_from_slice(&values[..N]);
    some
}
