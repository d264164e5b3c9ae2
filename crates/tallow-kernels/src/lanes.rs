//! Sums, products and maxima along a slice, in fixed lanes: the reductions inside other kernels.
//!
//! Everything is summed in `f64`, in [`LANES`] partial sums joined pairwise, so that a mean of
//! 1000 with a variance of 1 keeps its digits. All are inlined into bodies of `dispatch!`.

use crate::simd::{Isa, LANES};

/// Runs a block for every [`LANES`] elements of a slice, or of two slices of one length; the last
/// ones are filled up with zeros.
///
/// A macro and not a function that takes a closure: a closure has none of the target features of
/// the body that it stands in, so that every instruction in it would become a call.
macro_rules! for_lanes {
    ($isa:ident, $x:ident in $slice:expr => $block:block) => {{
        let (chunks, rest) = $slice.as_chunks::<{ $crate::simd::LANES }>();
        for chunk in chunks {
            let $x = $isa::load(chunk);
            $block
        }
        if !rest.is_empty() {
            let $x = $isa::load_rest(rest);
            $block
        }
    }};
    ($isa:ident, ($x:ident, $y:ident) in ($x_slice:expr, $y_slice:expr) => $block:block) => {{
        let (x_chunks, x_rest) = $x_slice.as_chunks::<{ $crate::simd::LANES }>();
        let (y_chunks, y_rest) = $y_slice.as_chunks::<{ $crate::simd::LANES }>();
        for (x_chunk, y_chunk) in x_chunks.iter().zip(y_chunks) {
            let ($x, $y) = ($isa::load(x_chunk), $isa::load(y_chunk));
            $block
        }
        if !x_rest.is_empty() {
            let ($x, $y) = ($isa::load_rest(x_rest), $isa::load_rest(y_rest));
            $block
        }
    }};
}
pub(crate) use for_lanes;

/// Up to [`LANES`] elements, then zeros.
#[inline(always)]
pub(crate) fn load<I: Isa>(x: &[f32]) -> I::Floats {
    match x.try_into() {
        Ok(full) => I::load(full),
        Err(_) => I::load_rest(x),
    }
}

/// Rows of a matrix that are asked for ahead of their use.
pub(crate) const ROWS_AHEAD: usize = 2;

/// Asks for the cache line of element `index` ahead of its use. Columns of a wide matrix are read in
/// runs with gaps, which the hardware doesn't foresee.
#[inline(always)]
pub(crate) fn prefetch(x: &[f32], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64; a prefetch touches nothing, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(x.as_ptr().wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (x, index);
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

/// `sum(x)`.
#[inline(always)]
pub(crate) fn sum<I: Isa>(x: &[f32]) -> f64 {
    // Two chains of additions run side by side.
    let (mut even, mut odd) = (I::zero(), I::zero());
    let (pairs, rest) = x.as_chunks::<{ 2 * LANES }>();
    for pair in pairs {
        let [first, second] = halves(pair);
        even = I::accumulate(even, I::load(first));
        odd = I::accumulate(odd, I::load(second));
    }
    for_lanes!(I, x in rest => { even = I::accumulate(even, x); });
    total::<I>(even) + total::<I>(odd)
}

#[inline(always)]
fn halves(pair: &[f32; 2 * LANES]) -> [&[f32; LANES]; 2] {
    let (chunks, _) = pair.as_chunks::<LANES>();
    [&chunks[0], &chunks[1]]
}

/// `sum(x * y)` of two slices of one length.
#[inline(always)]
pub(crate) fn dot<I: Isa>(x: &[f32], y: &[f32]) -> f64 {
    let mut sums = I::zero();
    for_lanes!(I, (x, y) in (x, y) => { sums = I::accumulate_product(sums, x, y); });
    total::<I>(sums)
}

/// `(sum(x), sum(x * x))`.
#[inline(always)]
pub(crate) fn moments<I: Isa>(x: &[f32]) -> (f64, f64) {
    let (mut sums, mut squares) = (I::zero(), I::zero());
    for_lanes!(I, x in x => {
        sums = I::accumulate(sums, x);
        squares = I::accumulate_product(squares, x, x);
    });
    (total::<I>(sums), total::<I>(squares))
}

/// The largest element; NaNs are passed over; `-inf` where there is none.
#[inline(always)]
pub(crate) fn max<I: Isa>(x: &[f32]) -> f32 {
    let mut even = I::splat(f32::NEG_INFINITY);
    let mut odd = even;
    let (pairs, rest) = x.as_chunks::<{ 2 * LANES }>();
    for pair in pairs {
        let [first, second] = halves(pair);
        even = I::max(I::load(first), even);
        odd = I::max(I::load(second), odd);
    }
    let (chunks, rest) = rest.as_chunks::<LANES>();
    for chunk in chunks {
        even = I::max(I::load(chunk), even);
    }
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let largest = join(I::floats(I::max(even, odd)), larger);
    rest.iter().fold(largest, |largest, &x| larger(x, largest))
}
