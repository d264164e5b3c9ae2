//! The one-dimensional transforms of the algorithms for stride 1; a tile's transform is one of them down, then across.
//!
//! A convolution of `N` pixels with three weights is a product of polynomials, found from its values at `N - 1`
//! points and at infinity (Toom and Cook; Winograd, "Arithmetic complexity of computations", 1980; Lavin and Gray,
//! "Fast algorithms for convolutional neural networks", 2015). With `Y = Aᵀ [(G w) ∘ (Bᵀ x)]` for the outputs, the
//! gradient of the weights is `Gᵀ [(A dY) ∘ (Bᵀ x)]`: the same three matrices.

use crate::registers::Lanes;
use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

/// One algorithm for correlations. Arrays of `N` hold as many values as the matrix has rows or columns, then anything.
///
/// # Safety
/// As for [`Lanes`]: the CPU must have the level.
pub(super) trait Transform<const N: usize> {
    const SIZES: Sizes;

    /// `Bᵀ`, from inputs to points.
    unsafe fn input<L: Lanes>(x: [L::Vector; N]) -> [L::Vector; N];
    /// `Aᵀ`, from points to outputs.
    unsafe fn output<L: Lanes>(m: [L::Vector; N]) -> [L::Vector; N];
    /// `G`, from three weights to weights at points.
    unsafe fn weight<L: Lanes>(w: [L::Vector; N]) -> [L::Vector; N];
}

/// The rest of what an algorithm for gradients of weights needs.
///
/// # Safety
/// As for [`Lanes`]: the CPU must have the level.
pub(super) trait Gradient<const N: usize>: Transform<N> {
    /// `A`, from gradients of the outputs to points.
    unsafe fn gradient<L: Lanes>(dy: [L::Vector; N]) -> [L::Vector; N];
    /// `Gᵀ`, from sums of products at points to gradients of three weights.
    unsafe fn weight_gradient<L: Lanes>(m: [L::Vector; N]) -> [L::Vector; N];
}

/// Numbers of values, each in one dimension.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Inputs of a tile.
    pub(super) inputs: usize,
    /// Outputs of a tile.
    pub(super) outputs: usize,
    /// Points, each a product of matrices.
    pub(super) points: usize,
    /// Points that differ in their weights: those from the last of them on have the same.
    pub(super) weights: usize,
}

impl Sizes {
    /// Points of a tile.
    pub(super) fn point_planes(&self) -> usize {
        self.points * self.points
    }

    /// Points of a filter.
    pub(super) fn weight_planes(&self) -> usize {
        self.weights * self.weights
    }

    /// The points of a tile that meet one of the points of a filter.
    pub(super) fn sharing(&self, weight_plane: usize) -> impl Iterator<Item = usize> + use<> {
        let Self {
            points, weights, ..
        } = *self;
        let sharing = move |weight: usize| {
            let end = if weight + 1 < weights {
                weight + 1
            } else {
                points
            };
            weight..end
        };
        let (i, j) = (weight_plane / weights, weight_plane % weights);
        sharing(i).flat_map(move |i| sharing(j).map(move |j| i * points + j))
    }
}

/// F(2, 3): the points 0, 1, -1 and infinity.
pub(super) struct Two;

impl Transform<4> for Two {
    const SIZES: Sizes = Sizes {
        inputs: 4,
        outputs: 2,
        points: 4,
        weights: 4,
    };

    #[inline(always)]
    unsafe fn input<L: Lanes>(x: [L::Vector; 4]) -> [L::Vector; 4] {
        // SAFETY: the caller has the level.
        unsafe {
            let [a, b, c, d] = x;
            [L::sub(a, c), L::add(b, c), L::sub(c, b), L::sub(d, b)]
        }
    }

    #[inline(always)]
    unsafe fn output<L: Lanes>(m: [L::Vector; 4]) -> [L::Vector; 4] {
        // SAFETY: the caller has the level.
        unsafe {
            let [a, b, c, d] = m;
            let (sum, difference) = (L::add(b, c), L::sub(b, c));
            [L::add(a, sum), L::add(difference, d), a, a]
        }
    }

    #[inline(always)]
    unsafe fn weight<L: Lanes>(w: [L::Vector; 4]) -> [L::Vector; 4] {
        // SAFETY: the caller has the level.
        unsafe {
            let [a, b, c, _] = w;
            let half = L::splat(0.5);
            let (even, odd) = (L::mul(L::add(a, c), half), L::mul(b, half));
            [a, L::add(even, odd), L::sub(even, odd), c]
        }
    }
}

/// As [`Two`], of whole numbers: weights at points are twice as large, in each dimension, so that nothing is halved.
pub(super) struct Integers;

impl Transform<4> for Integers {
    const SIZES: Sizes = Two::SIZES;

    #[inline(always)]
    unsafe fn input<L: Lanes>(x: [L::Vector; 4]) -> [L::Vector; 4] {
        // SAFETY: the caller has the level.
        unsafe { Two::input::<L>(x) }
    }

    #[inline(always)]
    unsafe fn output<L: Lanes>(m: [L::Vector; 4]) -> [L::Vector; 4] {
        // SAFETY: the caller has the level.
        unsafe { Two::output::<L>(m) }
    }

    #[inline(always)]
    unsafe fn weight<L: Lanes>(w: [L::Vector; 4]) -> [L::Vector; 4] {
        // SAFETY: the caller has the level.
        unsafe {
            let [a, b, c, _] = w;
            let even = L::add(a, c);
            [L::add(a, a), L::add(even, b), L::sub(even, b), L::add(c, c)]
        }
    }
}

impl Gradient<4> for Two {
    #[inline(always)]
    unsafe fn gradient<L: Lanes>(dy: [L::Vector; 4]) -> [L::Vector; 4] {
        // SAFETY: the caller has the level.
        unsafe {
            let [a, b, ..] = dy;
            [a, L::add(a, b), L::sub(a, b), b]
        }
    }

    #[inline(always)]
    unsafe fn weight_gradient<L: Lanes>(m: [L::Vector; 4]) -> [L::Vector; 4] {
        // SAFETY: the caller has the level.
        unsafe {
            let [a, b, c, d] = m;
            let half = L::splat(0.5);
            let even = L::mul(L::add(b, c), half);
            let odd = L::mul(L::sub(b, c), half);
            [L::add(a, even), odd, L::add(even, d), a]
        }
    }
}

/// F(4, 3): the points 0, ±sqrt(1/2), ±sqrt(2) and infinity.
///
/// Their powers stay closer to 1 than those of the usual 0, ±1, ±2: the largest error is a fifth.
pub(super) struct Four;

impl Transform<6> for Four {
    const SIZES: Sizes = Sizes {
        inputs: 6,
        outputs: 4,
        points: 6,
        weights: 6,
    };

    #[inline(always)]
    unsafe fn input<L: Lanes>(x: [L::Vector; 6]) -> [L::Vector; 6] {
        // SAFETY: the caller has the level.
        unsafe {
            let both = L::splat(-2.5);
            let zero = L::multiply_add(x[2], both, L::add(x[0], x[4]));
            let infinity = L::multiply_add(x[3], both, L::add(x[1], x[5]));
            let two = L::splat(-2.0);
            let (even, odd) = (
                L::multiply_add(x[2], two, x[4]),
                L::multiply_add(x[1], two, x[3]),
            );
            let small = L::multiply_add(odd, L::splat(FRAC_1_SQRT_2), even);
            let minus_small = L::multiply_add(odd, L::splat(-FRAC_1_SQRT_2), even);
            let half = L::splat(-0.5);
            let (even, odd) = (
                L::multiply_add(x[2], half, x[4]),
                L::multiply_add(x[1], half, x[3]),
            );
            let large = L::multiply_add(odd, L::splat(SQRT_2), even);
            let minus_large = L::multiply_add(odd, L::splat(-SQRT_2), even);
            [zero, small, minus_small, large, minus_large, infinity]
        }
    }

    #[inline(always)]
    unsafe fn output<L: Lanes>(m: [L::Vector; 6]) -> [L::Vector; 6] {
        // SAFETY: the caller has the level.
        unsafe {
            let (small_sum, small) = (L::add(m[1], m[2]), L::sub(m[1], m[2]));
            let (large_sum, large) = (L::add(m[3], m[4]), L::sub(m[3], m[4]));
            let y0 = L::add(L::add(m[0], small_sum), large_sum);
            let y1 = L::multiply_add(
                large,
                L::splat(SQRT_2),
                L::mul(small, L::splat(FRAC_1_SQRT_2)),
            );
            let y2 = L::multiply_add(large_sum, L::splat(2.0), L::mul(small_sum, L::splat(0.5)));
            let y3 = L::multiply_add(small, L::splat(0.5 * FRAC_1_SQRT_2), m[5]);
            let y3 = L::multiply_add(large, L::splat(2.0 * SQRT_2), y3);
            [y0, y1, y2, y3, y0, y0]
        }
    }

    #[inline(always)]
    unsafe fn weight<L: Lanes>(w: [L::Vector; 6]) -> [L::Vector; 6] {
        // SAFETY: the caller has the level.
        unsafe {
            let scale = -2.0 / 3.0;
            let even = L::mul(L::multiply_add(w[2], L::splat(0.5), w[0]), L::splat(scale));
            let factor = scale * FRAC_1_SQRT_2;
            let small = L::multiply_add(w[1], L::splat(factor), even);
            let minus_small = L::multiply_add(w[1], L::splat(-factor), even);
            let scale = 1.0 / 6.0;
            let even = L::mul(L::multiply_add(w[2], L::splat(2.0), w[0]), L::splat(scale));
            let factor = scale * SQRT_2;
            let large = L::multiply_add(w[1], L::splat(factor), even);
            let minus_large = L::multiply_add(w[1], L::splat(-factor), even);
            [w[0], small, minus_small, large, minus_large, w[2]]
        }
    }
}

impl Gradient<6> for Four {
    #[inline(always)]
    unsafe fn gradient<L: Lanes>(dy: [L::Vector; 6]) -> [L::Vector; 6] {
        // SAFETY: the caller has the level.
        unsafe {
            let half = L::splat(0.5);
            let (even, odd) = (
                L::multiply_add(dy[2], half, dy[0]),
                L::multiply_add(dy[3], half, dy[1]),
            );
            let small = L::multiply_add(odd, L::splat(FRAC_1_SQRT_2), even);
            let minus_small = L::multiply_add(odd, L::splat(-FRAC_1_SQRT_2), even);
            let two = L::splat(2.0);
            let (even, odd) = (
                L::multiply_add(dy[2], two, dy[0]),
                L::multiply_add(dy[3], two, dy[1]),
            );
            let large = L::multiply_add(odd, L::splat(SQRT_2), even);
            let minus_large = L::multiply_add(odd, L::splat(-SQRT_2), even);
            [dy[0], small, minus_small, large, minus_large, dy[3]]
        }
    }

    #[inline(always)]
    unsafe fn weight_gradient<L: Lanes>(m: [L::Vector; 6]) -> [L::Vector; 6] {
        // SAFETY: the caller has the level.
        unsafe {
            let (small_sum, small) = (L::add(m[1], m[2]), L::sub(m[1], m[2]));
            let (large_sum, large) = (L::add(m[3], m[4]), L::sub(m[3], m[4]));
            let w0 = L::multiply_add(small_sum, L::splat(-2.0 / 3.0), m[0]);
            let w0 = L::multiply_add(large_sum, L::splat(1.0 / 6.0), w0);
            let w1 = L::multiply_add(
                large,
                L::splat(SQRT_2 / 6.0),
                L::mul(small, L::splat(-2.0 / 3.0 * FRAC_1_SQRT_2)),
            );
            let w2 = L::sub(large_sum, small_sum);
            let w2 = L::multiply_add(w2, L::splat(1.0 / 3.0), m[5]);
            [w0, w1, w2, w0, w0, w0]
        }
    }
}
