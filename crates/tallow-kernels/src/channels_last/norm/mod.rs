//! Batch norm (Ioffe and Szegedy 2015) in the pieces that a compiled training step is made of, each one pass over
//! memory, with the activation and the addition of a residual branch in the same pass.
//!
//! Activations `[N, H, W, C]` are a matrix of `N·H·W` rows and `C` columns here, one column a channel. A training
//! step runs
//!
//! | pass | reads | writes |
//! |---|---|---|
//! | [`batch_stats`] | `x` | mean and variance, then [`fold`]ed to one scale and shift a channel |
//! | [`normalize`] | `x` (and the residual) | `y = act(x scale + shift + residual)` |
//! | [`backward_sums`] | `dy`, `y`, `x` | gradients of weight and bias |
//! | [`backward_input`] | `dy`, `y`, `x` | `dx` (and the gradient of the residual) |
//!
//! A layer with running statistics that it doesn't change needs [`fold`] and [`normalize`], and [`backward_frozen`].
//!
//! ```
//! use tallow_kernels::channels_last::norm::*;
//! use tallow_kernels::workspace::Workspace;
//!
//! // Three rows of two channels.
//! let x = [1.0, 10.0, 2.0, 10.0, 3.0, 40.0];
//! let workspace = Workspace::new();
//! let [mut mean, mut var, mut scale, mut shift] = [[0.0; 2]; 4];
//! batch_stats(2, &x, &mut mean, &mut var, &workspace)?;
//! assert_eq!(mean, [2.0, 20.0]);
//!
//! let statistics = Statistics { mean: &mean, var: &var, eps: 1e-5 };
//! fold(statistics, None, None, &mut scale, &mut shift)?;
//! let affine = Affine { scale: &scale, shift: &shift };
//! let mut y = [0.0; 6];
//! normalize(2, &x, affine, Residual::None, Clamp::Relu, &mut y)?;
//! assert_eq!(y[..3], [0.0, 0.0, 0.0]);
//! assert!((y[4] - 1.5f32.sqrt()).abs() < 1e-4);
//! # Ok::<(), tallow_kernels::Error>(())
//! ```
//!
//! # Accuracy
//!
//! Columns are summed in `f32` over at most 64 rows, as differences from a number near the mean; these sums are
//! joined in `f64` (Chan, Golub and LeVeque 1979). A mean of 1000 then costs no digits of a variance of 1.

mod gradient;
mod normalize;
mod statistics;
mod sums;
mod tiling;

pub use gradient::{
    backward_frozen, backward_frozen_in_place, backward_input, backward_input_in_place,
};
pub use normalize::{Affine, Residual, fold, normalize, normalize_in_place};
pub use statistics::{Statistics, batch_stats};
pub use sums::{Sums, backward_sums};

use crate::error::{Error, Result, check_len};

/// An activation whose gradient can be told from its output, so that its input need not be kept.
///
/// Values are those of [`Activation`](crate::activation::Activation) of the same name, to the bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clamp {
    /// The value as it is.
    None,
    /// `max(v, 0)`.
    Relu,
    /// `min(max(v, 0), 6)`.
    Relu6,
}

impl Clamp {
    /// What the backward pass needs to know: the activation, with the output that it gave.
    pub fn mask(self, y: &[f32]) -> Mask<'_> {
        match self {
            Self::None => Mask::None,
            Self::Relu => Mask::Relu(y),
            Self::Relu6 => Mask::Relu6(y),
        }
    }
}

/// Where a gradient passes: all over, or where the output `y` of an activation lies within its bounds.
///
/// Edges are those of [`activation::backward`](crate::activation::backward).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mask<'a> {
    /// Everywhere.
    None,
    /// Where `y > 0`, or `y` is NaN.
    Relu(&'a [f32]),
    /// Where `0 < y < 6`.
    Relu6(&'a [f32]),
}

impl<'a> Mask<'a> {
    /// The output, or `other` where none is needed.
    fn output_or(self, other: &'a [f32]) -> &'a [f32] {
        match self {
            Self::None => other,
            Self::Relu(y) | Self::Relu6(y) => y,
        }
    }
}

/// A [`Clamp`] as a type, so that loops are compiled for each.
trait Gate: Sync {
    /// The activation's value.
    fn value(v: f32) -> f32;
    /// `dy` where it passes, else 0.
    fn gradient(y: f32, dy: f32) -> f32;
}

struct Open;

impl Gate for Open {
    #[inline(always)]
    fn value(v: f32) -> f32 {
        v
    }

    #[inline(always)]
    fn gradient(_y: f32, dy: f32) -> f32 {
        dy
    }
}

struct Relu;

impl Gate for Relu {
    #[inline(always)]
    fn value(v: f32) -> f32 {
        if v < 0.0 { 0.0 } else { v }
    }

    #[inline(always)]
    fn gradient(y: f32, dy: f32) -> f32 {
        if y <= 0.0 { 0.0 } else { dy }
    }
}

struct Relu6;

impl Gate for Relu6 {
    #[inline(always)]
    fn value(v: f32) -> f32 {
        let v = if v < 0.0 { 0.0 } else { v };
        if v > 6.0 { 6.0 } else { v }
    }

    #[inline(always)]
    fn gradient(y: f32, dy: f32) -> f32 {
        // Not short-circuited, so that the loop vectorises.
        if (y > 0.0) & (y < 6.0) { dy } else { 0.0 }
    }
}

/// Number of rows of a matrix that `x` holds.
fn rows_of(kernel: &'static str, x: &[f32], channels: usize) -> Result<usize> {
    if channels > 0 && x.len().is_multiple_of(channels) {
        return Ok(x.len() / channels);
    }
    let problem = format!(
        "{} elements aren't whole rows of {channels} channels",
        x.len()
    );
    Err(Error::Geometry { kernel, problem })
}

/// Fails unless every operand holds `len` elements.
fn check_lens(kernel: &'static str, len: usize, operands: &[(&'static str, &[f32])]) -> Result<()> {
    operands
        .iter()
        .try_for_each(|(operand, slice)| check_len(kernel, operand, slice, len))
}

fn check_mask(kernel: &'static str, mask: Mask<'_>, len: usize) -> Result<()> {
    match mask {
        Mask::None => Ok(()),
        Mask::Relu(y) | Mask::Relu6(y) => check_len(kernel, "y", y, len),
    }
}

/// Checks the operands that the backward passes of training share; gives the number of rows.
fn check_operands(
    kernel: &'static str,
    channels: usize,
    dy: &[f32],
    mask: Mask<'_>,
    x: &[f32],
    statistics: Statistics<'_>,
) -> Result<usize> {
    let count = rows_of(kernel, x, channels)?;
    check_len(kernel, "dy", dy, x.len())?;
    check_mask(kernel, mask, x.len())?;
    let Statistics { mean, var, eps } = statistics;
    check_lens(kernel, channels, &[("mean", mean), ("var", var)])?;
    check_eps(kernel, eps)?;
    Ok(count)
}

fn check_eps(kernel: &'static str, eps: f64) -> Result<()> {
    if eps >= 0.0 && eps.is_finite() {
        return Ok(());
    }
    Err(Error::Parameter {
        kernel,
        parameter: "eps",
        found: eps,
        allowed: "finite and at least 0",
    })
}

fn inverse_std(variance: f32, eps: f64) -> f32 {
    (1.0 / (f64::from(variance) + eps).sqrt()) as f32
}
