//! Gradient clipping: [`GradientClip`] for the trainer, and the functions it is made of.

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use serde::{Deserialize, Serialize};
use tallow_tensor::update;

use crate::{Error, Result};

/// How gradients are limited between the backward pass and the update.
///
/// ```
/// use tallow_train::GradientClip;
///
/// assert!(GradientClip::norm(1.0).check().is_ok());
/// assert!(GradientClip::value(-1.0).check().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GradientClip {
    /// The norm of all gradients together is at most this; see [`clip_grad_norm`].
    Norm(f64),
    /// No element is farther from zero than this; see [`clip_grad_value`].
    Value(f64),
}

impl GradientClip {
    /// Scales all gradients alike, so that their global norm is at most `max`.
    pub fn norm(max: f64) -> Self {
        Self::Norm(max)
    }

    /// Brings every element into `-limit` to `limit`.
    pub fn value(limit: f64) -> Self {
        Self::Value(limit)
    }

    /// Checks the limit.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a limit that is not above zero.
    pub fn check(&self) -> Result<()> {
        let (Self::Norm(limit) | Self::Value(limit)) = self;
        let fits = limit.is_finite() && *limit > 0.0;
        Error::require(fits, "the limit of gradients", "a number above 0", limit)
    }

    /// Limits the gradients of `parameters`, and gives the norm that they had.
    ///
    /// # Errors
    ///
    /// As [`clip_grad_norm`].
    pub fn apply(&self, parameters: &[(String, Var)], gradients: &mut GradStore) -> Result<f64> {
        match *self {
            Self::Norm(max) => clip_grad_norm(parameters, gradients, max),
            Self::Value(limit) => {
                let norm = grad_norm(parameters, gradients)?;
                clip_grad_value(parameters, gradients, limit)?;
                Ok(norm)
            }
        }
    }
}

/// The global norm of the gradients of `parameters`: the root of the sum of the squares of all elements, summed in f64 and in an
/// order that doesn't depend on the number of threads.
///
/// # Errors
///
/// [`Error::NonFiniteGradient`] names the first parameter whose gradient holds NaN or infinity.
pub fn grad_norm(parameters: &[(String, Var)], gradients: &GradStore) -> Result<f64> {
    let mut total = 0.0;
    for (name, gradient) in present(parameters, gradients) {
        let squares = update::square_sum(gradient)?;
        if !squares.is_finite() {
            return Err(Error::NonFiniteGradient {
                parameter: name.to_string(),
                norm: squares.sqrt(),
            });
        }
        total += squares;
    }
    Ok(total.sqrt())
}

/// Scales the gradients of `parameters` by `max_norm / (norm + 1e-6)` if that is below 1, and gives their norm before: PyTorch's
/// `clip_grad_norm_` with `error_if_nonfinite`.
///
/// ```
/// use candle_core::{Device, Var};
/// use tallow_train::clip_grad_norm;
///
/// # fn main() -> tallow_train::Result<()> {
/// let w = Var::new(&[3f32, 4.0], &Device::Cpu)?;
/// let mut gradients = (w.sqr()?.sum_all()? * 0.5)?.backward()?;
/// let parameters = [("w".to_string(), w.clone())];
/// assert_eq!(clip_grad_norm(&parameters, &mut gradients, 1.0)?, 5.0);
/// let clipped = gradients.get(&w).unwrap().to_vec1::<f32>()?;
/// assert!((clipped[0] - 0.6).abs() < 1e-6 && (clipped[1] - 0.8).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Setting`] for a `max_norm` that is not above zero; [`Error::NonFiniteGradient`] names the first parameter whose
/// gradient holds NaN or infinity. Gradients are unchanged then.
pub fn clip_grad_norm(
    parameters: &[(String, Var)],
    gradients: &mut GradStore,
    max_norm: f64,
) -> Result<f64> {
    GradientClip::Norm(max_norm).check()?;
    let norm = grad_norm(parameters, gradients)?;
    let factor = max_norm / (norm + 1e-6);
    if factor < 1.0 {
        replace(parameters, gradients, |gradient| gradient * factor)?;
    }
    Ok(norm)
}

/// Brings every element of the gradients of `parameters` into `-limit` to `limit`: PyTorch's `clip_grad_value_`.
///
/// # Errors
///
/// [`Error::Setting`] for a `limit` that is not above zero.
pub fn clip_grad_value(
    parameters: &[(String, Var)],
    gradients: &mut GradStore,
    limit: f64,
) -> Result<()> {
    GradientClip::Value(limit).check()?;
    replace(parameters, gradients, |gradient| {
        gradient.clamp(-limit, limit)
    })
}

fn present<'a>(
    parameters: &'a [(String, Var)],
    gradients: &'a GradStore,
) -> impl Iterator<Item = (&'a str, &'a Tensor)> {
    parameters
        .iter()
        .filter_map(|(name, var)| Some((name.as_str(), gradients.get(var)?)))
}

/// Not in place: what a gradient shares its memory with isn't known.
fn replace(
    parameters: &[(String, Var)],
    gradients: &mut GradStore,
    change: impl Fn(&Tensor) -> candle_core::Result<Tensor>,
) -> Result<()> {
    for (_, var) in parameters {
        if let Some(gradient) = gradients.remove(var) {
            gradients.insert(var, change(&gradient)?);
        }
    }
    Ok(())
}
