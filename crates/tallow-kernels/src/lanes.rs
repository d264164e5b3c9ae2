//! Sums, products and maxima along a slice, in fixed lanes: the reductions inside other kernels.
//!
//! Everything is summed in `f64`, in [`LANES`] partial sums joined pairwise, so that a mean of
//! 1000 with a variance of 1 keeps its digits. All are inlined into bodies of `dispatch!`.

use crate::simd::{Isa, LANES};

/// Elements of a rest shorter than [`LANES`], filled up with `fill`.
#[inline(always)]
fn padded(rest: &[f32], fill: f32) -> [f32; LANES] {
    let mut lanes = [fill; LANES];
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = x;
    }
    lanes
}

/// Joins lanes pairwise.
#[inline(always)]
fn join<T: Copy>(mut lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = f(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// The total of the lanes.
#[inline(always)]
pub(crate) fn total<I: Isa>(sums: I::Sums) -> f64 {
    join(I::sums(sums), |a, b| a + b)
}

/// Calls `f` with every [`LANES`] elements, the last ones filled up with zeros.
#[inline(always)]
pub(crate) fn each<I: Isa>(x: &[f32], mut f: impl FnMut(I::Floats)) {
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        f(I::load(chunk));
    }
    if !rest.is_empty() {
        f(I::load(&padded(rest, 0.0)));
    }
}

/// Calls `f` with every [`LANES`] elements of two slices of one length, the last ones filled up
/// with zeros.
#[inline(always)]
pub(crate) fn each2<I: Isa>(x: &[f32], y: &[f32], mut f: impl FnMut(I::Floats, I::Floats)) {
    let (x_chunks, x_rest) = x.as_chunks::<LANES>();
    let (y_chunks, y_rest) = y.as_chunks::<LANES>();
    for (x, y) in x_chunks.iter().zip(y_chunks) {
        f(I::load(x), I::load(y));
    }
    if !x_rest.is_empty() {
        f(I::load(&padded(x_rest, 0.0)), I::load(&padded(y_rest, 0.0)));
    }
}

/// `sum(x)`.
#[inline(always)]
pub(crate) fn sum<I: Isa>(x: &[f32]) -> f64 {
    let mut sums = [I::zero(); 2];
    each_alternating::<I>(x, |i, x| sums[i] = I::accumulate(sums[i], x));
    total::<I>(sums[0]) + total::<I>(sums[1])
}

/// `sum(x * y)` of two slices of one length.
#[inline(always)]
pub(crate) fn dot<I: Isa>(x: &[f32], y: &[f32]) -> f64 {
    let mut sums = I::zero();
    each2::<I>(x, y, |x, y| sums = I::accumulate_product(sums, x, y));
    total::<I>(sums)
}

/// `(sum(x), sum(x * x))`.
#[inline(always)]
pub(crate) fn moments<I: Isa>(x: &[f32]) -> (f64, f64) {
    let (mut sums, mut squares) = (I::zero(), I::zero());
    each::<I>(x, |x| {
        sums = I::accumulate(sums, x);
        squares = I::accumulate_product(squares, x, x);
    });
    (total::<I>(sums), total::<I>(squares))
}

/// The largest element; NaNs are passed over; `-inf` where there is none.
#[inline(always)]
pub(crate) fn max<I: Isa>(x: &[f32]) -> f32 {
    let mut largest = [I::splat(f32::NEG_INFINITY); 2];
    let (chunks, rest) = x.as_chunks::<LANES>();
    let (pairs, odd) = chunks.as_chunks::<2>();
    for pair in pairs {
        largest[0] = I::max(I::load(&pair[0]), largest[0]);
        largest[1] = I::max(I::load(&pair[1]), largest[1]);
    }
    for chunk in odd {
        largest[0] = I::max(I::load(chunk), largest[0]);
    }
    largest[1] = I::max(I::load(&padded(rest, f32::NEG_INFINITY)), largest[1]);
    join(I::floats(I::max(largest[0], largest[1])), |a, b| {
        if a > b { a } else { b }
    })
}

/// [`each`], telling even chunks (0) from odd ones (1): two chains of additions run side by side.
#[inline(always)]
fn each_alternating<I: Isa>(x: &[f32], mut f: impl FnMut(usize, I::Floats)) {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let (pairs, odd) = chunks.as_chunks::<2>();
    for pair in pairs {
        f(0, I::load(&pair[0]));
        f(1, I::load(&pair[1]));
    }
    for chunk in odd {
        f(0, I::load(chunk));
    }
    if !rest.is_empty() {
        f(1, I::load(&padded(rest, 0.0)));
    }
}
