//! Activation functions and their gradients, PyTorch's at every edge.
//!
//! The gradient is computed from the input, so that nothing but the input need be kept. NaN goes
//! in and comes out.

use crate::error::{Result, check_len};
use crate::math;
use crate::parallel::{LEAF, for_each};
use crate::simd::{Isa, dispatch};

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `max(x, 0)`. Gradient 0 at 0.
    Relu,
    /// `min(max(x, 0), 6)` (MobileNet, Howard et al. 2017). Gradient 0 at 0 and at 6.
    Relu6,
    /// `x Phi(x)` with the normal distribution function (Hendrycks and Gimpel 2016), through erf.
    Gelu,
    /// `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`: PyTorch's `approximate="tanh"`.
    GeluTanh,
    /// `x sigmoid(x)`, also called swish (Elfwing et al. 2017).
    Silu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x min(max(x + 3, 0), 6) / 6` (MobileNetV3, Howard et al. 2019). Gradient 0 at -3, 1 at 3.
    Hardswish,
}

/// `y = act(x)`, element by element; any shape.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) unless `y` is as long as `x`.
pub fn forward(act: Activation, x: &[f32], y: &mut [f32]) -> Result<()> {
    check_len("activation forward", "y", y, x.len())?;
    let leaf = values(act);
    for_each(x.len(), LEAF, (x, y), |_, (x, y)| leaf(x, y));
    Ok(())
}

/// `dx = dy act'(x)`, element by element, from the input `x` of the forward pass.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) unless all slices are as long as `x`.
pub fn backward(act: Activation, x: &[f32], dy: &[f32], dx: &mut [f32]) -> Result<()> {
    check_len("activation backward", "dy", dy, x.len())?;
    check_len("activation backward", "dx", dx, x.len())?;
    let leaf = gradients(act);
    for_each(x.len(), LEAF, (x, dy, dx), |_, (x, dy, dx)| leaf(x, dy, dx));
    Ok(())
}

/// The loop of [`forward`] over `x` and `y`.
pub(crate) fn values(act: Activation) -> fn(&[f32], &mut [f32]) {
    match act {
        Activation::Relu => value_leaf::<Relu>,
        Activation::Relu6 => value_leaf::<Relu6>,
        Activation::Gelu => value_leaf::<Gelu>,
        Activation::GeluTanh => value_leaf::<GeluTanh>,
        Activation::Silu => value_leaf::<Silu>,
        Activation::Sigmoid => value_leaf::<Sigmoid>,
        Activation::Tanh => value_leaf::<Tanh>,
        Activation::Hardswish => value_leaf::<Hardswish>,
    }
}

/// The loop of [`backward`] over `x`, `dy` and `dx`.
pub(crate) fn gradients(act: Activation) -> fn(&[f32], &[f32], &mut [f32]) {
    match act {
        Activation::Relu => gradient_leaf::<Relu>,
        Activation::Relu6 => gradient_leaf::<Relu6>,
        Activation::Gelu => gradient_leaf::<Gelu>,
        Activation::GeluTanh => gradient_leaf::<GeluTanh>,
        Activation::Silu => gradient_leaf::<Silu>,
        Activation::Sigmoid => gradient_leaf::<Sigmoid>,
        Activation::Tanh => gradient_leaf::<Tanh>,
        Activation::Hardswish => gradient_leaf::<Hardswish>,
    }
}

/// One function of one variable.
trait Curve {
    fn value<I: Isa>(x: f32) -> f32;
    fn gradient<I: Isa>(x: f32, dy: f32) -> f32;
}

dispatch! {
    fn value_leaf<I, C: Curve>(x: &[f32], y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = C::value::<I>(x);
        }
    }
}

dispatch! {
    fn gradient_leaf<I, C: Curve>(x: &[f32], dy: &[f32], dx: &mut [f32]) {
        for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
            *dx = C::gradient::<I>(x, dy);
        }
    }
}

struct Relu;

impl Curve for Relu {
    #[inline(always)]
    fn value<I: Isa>(x: f32) -> f32 {
        if x < 0.0 { 0.0 } else { x }
    }

    #[inline(always)]
    fn gradient<I: Isa>(x: f32, dy: f32) -> f32 {
        if x <= 0.0 { 0.0 } else { dy }
    }
}

struct Relu6;

impl Curve for Relu6 {
    #[inline(always)]
    fn value<I: Isa>(x: f32) -> f32 {
        clamp_0_6(x)
    }

    #[inline(always)]
    fn gradient<I: Isa>(x: f32, dy: f32) -> f32 {
        // Not short-circuited, so that the loop vectorises.
        if (x > 0.0) & (x < 6.0) { dy } else { 0.0 }
    }
}

/// `min(max(x, 0), 6)` that keeps a NaN.
#[inline(always)]
fn clamp_0_6(x: f32) -> f32 {
    let x = if x < 0.0 { 0.0 } else { x };
    if x > 6.0 { 6.0 } else { x }
}

struct Gelu;

/// Normal distribution function.
#[inline(always)]
fn normal_cdf<I: Isa>(x: f32) -> f32 {
    I::fma(
        0.5,
        math::erf::<I>(x * std::f32::consts::FRAC_1_SQRT_2),
        0.5,
    )
}

impl Curve for Gelu {
    #[inline(always)]
    fn value<I: Isa>(x: f32) -> f32 {
        x * normal_cdf::<I>(x)
    }

    #[inline(always)]
    fn gradient<I: Isa>(x: f32, dy: f32) -> f32 {
        /// `1 / sqrt(2 pi)`
        const DENSITY_AT_0: f32 = 0.398_942_3;
        let density = DENSITY_AT_0 * math::exp::<I>(-0.5 * x * x);
        dy * I::fma(x, density, normal_cdf::<I>(x))
    }
}

struct GeluTanh;

impl GeluTanh {
    /// `sqrt(2 / pi)`
    const SCALE: f32 = 0.797_884_6;
    const CUBIC: f32 = 0.044_715;

    #[inline(always)]
    fn tanh<I: Isa>(x: f32) -> f32 {
        math::tanh::<I>(Self::SCALE * I::fma(Self::CUBIC * x * x, x, x))
    }
}

impl Curve for GeluTanh {
    #[inline(always)]
    fn value<I: Isa>(x: f32) -> f32 {
        0.5 * x * (1.0 + Self::tanh::<I>(x))
    }

    #[inline(always)]
    fn gradient<I: Isa>(x: f32, dy: f32) -> f32 {
        let tanh = Self::tanh::<I>(x);
        let inner = Self::SCALE * I::fma(3.0 * Self::CUBIC * x, x, 1.0);
        // The inner slope may be infinite where 1 - tanh^2 is 0; the product's limit is 0.
        let sech_squared = 1.0 - tanh * tanh;
        let bend = if sech_squared == 0.0 {
            0.0
        } else {
            0.5 * x * sech_squared * inner
        };
        dy * (0.5 * (1.0 + tanh) + bend)
    }
}

struct Silu;

impl Curve for Silu {
    #[inline(always)]
    fn value<I: Isa>(x: f32) -> f32 {
        x * math::sigmoid::<I>(x)
    }

    #[inline(always)]
    fn gradient<I: Isa>(x: f32, dy: f32) -> f32 {
        let s = math::sigmoid::<I>(x);
        dy * s * I::fma(x, 1.0 - s, 1.0)
    }
}

struct Sigmoid;

impl Curve for Sigmoid {
    #[inline(always)]
    fn value<I: Isa>(x: f32) -> f32 {
        math::sigmoid::<I>(x)
    }

    #[inline(always)]
    fn gradient<I: Isa>(x: f32, dy: f32) -> f32 {
        let s = math::sigmoid::<I>(x);
        dy * s * (1.0 - s)
    }
}

struct Tanh;

impl Curve for Tanh {
    #[inline(always)]
    fn value<I: Isa>(x: f32) -> f32 {
        math::tanh::<I>(x)
    }

    #[inline(always)]
    fn gradient<I: Isa>(x: f32, dy: f32) -> f32 {
        let t = math::tanh::<I>(x);
        dy * (1.0 - t * t)
    }
}

struct Hardswish;

impl Curve for Hardswish {
    #[inline(always)]
    fn value<I: Isa>(x: f32) -> f32 {
        x * clamp_0_6(x + 3.0) * (1.0 / 6.0)
    }

    #[inline(always)]
    fn gradient<I: Isa>(x: f32, dy: f32) -> f32 {
        let slope = I::fma(x, 1.0 / 3.0, 0.5);
        let inner = if x >= 3.0 { dy } else { dy * slope };
        if x <= -3.0 { 0.0 } else { inner }
    }
}
