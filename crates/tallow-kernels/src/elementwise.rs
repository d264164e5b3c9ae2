//! Arithmetic of element with element, with a number, or with one value a channel.
//!
//! Operands have one shape here; [`broadcast`](crate::broadcast) stretches them.

use crate::error::{Result, check_len};
use crate::math;
use crate::parallel::{LEAF, for_each, grain, rows};
use crate::shape::ChannelShape;
use crate::simd::{Isa, dispatch};

/// A function of two numbers.
pub(crate) trait Pairing {
    fn apply<I: Isa>(a: f32, b: f32) -> f32;
}

/// A function of one number and up to two constants.
pub(crate) trait Mapping {
    fn apply<I: Isa>(x: f32, p: f32, q: f32) -> f32;
}

dispatch! {
    pub(crate) fn pair_leaf<I, P: Pairing>(a: &[f32], b: &[f32], y: &mut [f32]) {
        for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
            *y = P::apply::<I>(a, b);
        }
    }
}

dispatch! {
    /// `y = f(y, x)`.
    fn update_leaf<I, P: Pairing>(y: &mut [f32], x: &[f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = P::apply::<I>(*y, x);
        }
    }
}

dispatch! {
    pub(crate) fn map_leaf<I, M: Mapping>(x: &[f32], p: f32, q: f32, y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = M::apply::<I>(x, p, q);
        }
    }
}

fn pair<P: Pairing>(kernel: &'static str, a: &[f32], b: &[f32], y: &mut [f32]) -> Result<()> {
    check_len(kernel, "b", b, a.len())?;
    check_len(kernel, "y", y, a.len())?;
    for_each(a.len(), LEAF, (a, b, y), |_, (a, b, y)| {
        pair_leaf::<P>(a, b, y)
    });
    Ok(())
}

fn map<M: Mapping>(kernel: &'static str, x: &[f32], p: f32, q: f32, y: &mut [f32]) -> Result<()> {
    check_len(kernel, "y", y, x.len())?;
    for_each(x.len(), LEAF, (x, y), |_, (x, y)| map_leaf::<M>(x, p, q, y));
    Ok(())
}

pub(crate) struct Sum;

impl Pairing for Sum {
    #[inline(always)]
    fn apply<I: Isa>(a: f32, b: f32) -> f32 {
        a + b
    }
}

pub(crate) struct Difference;

impl Pairing for Difference {
    #[inline(always)]
    fn apply<I: Isa>(a: f32, b: f32) -> f32 {
        a - b
    }
}

pub(crate) struct Product;

impl Pairing for Product {
    #[inline(always)]
    fn apply<I: Isa>(a: f32, b: f32) -> f32 {
        a * b
    }
}

pub(crate) struct Quotient;

impl Pairing for Quotient {
    #[inline(always)]
    fn apply<I: Isa>(a: f32, b: f32) -> f32 {
        a / b
    }
}

/// `y = a + b`.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) unless all slices are as long as `a`; so for all
/// functions of this module.
pub fn add(a: &[f32], b: &[f32], y: &mut [f32]) -> Result<()> {
    pair::<Sum>("add", a, b, y)
}

/// `y = a - b`.
///
/// # Errors
/// As [`add`].
pub fn sub(a: &[f32], b: &[f32], y: &mut [f32]) -> Result<()> {
    pair::<Difference>("sub", a, b, y)
}

/// `y = a b`.
///
/// # Errors
/// As [`add`].
pub fn mul(a: &[f32], b: &[f32], y: &mut [f32]) -> Result<()> {
    pair::<Product>("mul", a, b, y)
}

/// `y = a / b`.
///
/// # Errors
/// As [`add`].
pub fn div(a: &[f32], b: &[f32], y: &mut [f32]) -> Result<()> {
    pair::<Quotient>("div", a, b, y)
}

/// `y += x`.
///
/// # Errors
/// As [`add`].
pub fn add_assign(y: &mut [f32], x: &[f32]) -> Result<()> {
    check_len("add_assign", "x", x, y.len())?;
    for_each(y.len(), LEAF, (y, x), |_, (y, x)| update_leaf::<Sum>(y, x));
    Ok(())
}

/// `y *= x`.
///
/// # Errors
/// As [`add`].
pub fn mul_assign(y: &mut [f32], x: &[f32]) -> Result<()> {
    check_len("mul_assign", "x", x, y.len())?;
    for_each(y.len(), LEAF, (y, x), |_, (y, x)| {
        update_leaf::<Product>(y, x)
    });
    Ok(())
}

dispatch! {
    fn axpy_leaf<I>(a: f32, x: &[f32], y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = I::fma(a, x, *y);
        }
    }
}

/// `y += a x`, rounded once where the CPU can.
///
/// # Errors
/// As [`add`].
pub fn axpy(a: f32, x: &[f32], y: &mut [f32]) -> Result<()> {
    check_len("axpy", "y", y, x.len())?;
    for_each(x.len(), LEAF, (x, y), |_, (x, y)| axpy_leaf(a, x, y));
    Ok(())
}

pub(crate) struct Scale;

impl Mapping for Scale {
    #[inline(always)]
    fn apply<I: Isa>(x: f32, factor: f32, _: f32) -> f32 {
        x * factor
    }
}

/// `y = factor x`.
///
/// # Errors
/// As [`add`].
pub fn scale(x: &[f32], factor: f32, y: &mut [f32]) -> Result<()> {
    map::<Scale>("scale", x, factor, 0.0, y)
}

/// `x *= factor`.
pub fn scale_assign(x: &mut [f32], factor: f32) {
    for_each(x.len(), LEAF, x, |_, x| {
        x.iter_mut().for_each(|x| *x *= factor)
    });
}

pub(crate) struct Shift;

impl Mapping for Shift {
    #[inline(always)]
    fn apply<I: Isa>(x: f32, summand: f32, _: f32) -> f32 {
        x + summand
    }
}

/// `y = x + summand`.
///
/// # Errors
/// As [`add`].
pub fn add_scalar(x: &[f32], summand: f32, y: &mut [f32]) -> Result<()> {
    map::<Shift>("add_scalar", x, summand, 0.0, y)
}

struct Clamp;

impl Mapping for Clamp {
    #[inline(always)]
    fn apply<I: Isa>(x: f32, low: f32, high: f32) -> f32 {
        let x = if x < low { low } else { x };
        if x > high { high } else { x }
    }
}

/// `y = min(max(x, low), high)`; NaN stays NaN.
///
/// # Errors
/// As [`add`].
pub fn clamp(x: &[f32], low: f32, high: f32, y: &mut [f32]) -> Result<()> {
    map::<Clamp>("clamp", x, low, high, y)
}

struct Exp;

impl Mapping for Exp {
    #[inline(always)]
    fn apply<I: Isa>(x: f32, _: f32, _: f32) -> f32 {
        math::exp::<I>(x)
    }
}

/// `y = e^x`, within 1e-7 of the value; 0 below -103.97, infinite above 88.72.
///
/// # Errors
/// As [`add`].
pub fn exp(x: &[f32], y: &mut [f32]) -> Result<()> {
    map::<Exp>("exp", x, 0.0, 0.0, y)
}

struct Erf;

impl Mapping for Erf {
    #[inline(always)]
    fn apply<I: Isa>(x: f32, _: f32, _: f32) -> f32 {
        math::erf::<I>(x)
    }
}

/// `y = erf(x)`, the error function, within 1.2e-7 of the value.
///
/// # Errors
/// As [`add`].
pub fn erf(x: &[f32], y: &mut [f32]) -> Result<()> {
    map::<Erf>("erf", x, 0.0, 0.0, y)
}

dispatch! {
    /// A leaf of planes that starts with the plane numbered `first`.
    fn channels_leaf<I, P: Pairing>(
        shape: &ChannelShape, first: usize, x: &[f32], b: &[f32], y: &mut [f32]
    ) {
        if shape.spatial == 1 {
            // [N, C]: leaves hold whole samples, and channels lie side by side.
            for (x, y) in x.chunks_exact(shape.channels).zip(y.chunks_exact_mut(shape.channels)) {
                for ((y, &x), &b) in y.iter_mut().zip(x).zip(b) {
                    *y = P::apply::<I>(x, b);
                }
            }
            return;
        }
        let planes = x.chunks_exact(shape.spatial).zip(y.chunks_exact_mut(shape.spatial));
        for (plane, (x, y)) in planes.enumerate() {
            let b = b[(first + plane) % shape.channels];
            for (y, &x) in y.iter_mut().zip(x) {
                *y = P::apply::<I>(x, b);
            }
        }
    }
}

fn per_channel<P: Pairing>(
    kernel: &'static str,
    shape: &ChannelShape,
    x: &[f32],
    b: &[f32],
    y: &mut [f32],
) -> Result<()> {
    let len = shape.len(kernel)?;
    check_len(kernel, "x", x, len)?;
    check_len(kernel, "b", b, shape.channels)?;
    check_len(kernel, "y", y, len)?;
    if len == 0 {
        return Ok(());
    }
    // [N, C] is cut between samples, [N, C, S] between planes.
    let width = if shape.spatial == 1 {
        shape.channels
    } else {
        shape.spatial
    };
    for_each(
        len / width,
        grain(width),
        (rows(x, width), rows(y, width)),
        |first, (x, y)| {
            channels_leaf::<P>(shape, first, x.data, b, y.data);
        },
    );
    Ok(())
}

/// `y[n, c, s] = x[n, c, s] + b[c]`: the bias of a convolution, or with `spatial` 1 of a linear
/// layer.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) unless `x` and `y` have the shape and `b` is `[C]`.
pub fn add_per_channel(shape: &ChannelShape, x: &[f32], b: &[f32], y: &mut [f32]) -> Result<()> {
    per_channel::<Sum>("add_per_channel", shape, x, b, y)
}

/// `y[n, c, s] = x[n, c, s] b[c]`.
///
/// # Errors
/// As [`add_per_channel`].
pub fn mul_per_channel(shape: &ChannelShape, x: &[f32], b: &[f32], y: &mut [f32]) -> Result<()> {
    per_channel::<Product>("mul_per_channel", shape, x, b, y)
}
