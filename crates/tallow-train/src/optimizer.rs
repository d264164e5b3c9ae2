//! How parameters follow gradients: the [`Optimizer`] trait, [`AdamW`], [`Sgd`], [`Lamb`], [`Muon`], [`ParamGroups`] for options by
//! rule, and the state that makes all of it resumable.
//!
//! An optimizer knows parameters by name, nothing of models, losses or schedules: whoever drives it sets the
//! learning rate before each step.

mod adamw;
mod groups;
mod lamb;
mod moments;
mod muon;
mod sgd;
mod state;

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};

use crate::{Error, Result};

pub use adamw::AdamW;
pub use groups::{GroupOptions, ParamGroup, ParamGroups};
pub use lamb::Lamb;
pub use muon::{Muon, MuonAdjustment};
pub use sgd::Sgd;
pub use state::{OptimizerState, ParameterState};

/// An update rule with a state that can be read and put back.
///
/// To write one of your own, keep what it remembers by parameter name, and give all of it out in
/// [`state`](Optimizer::state): then checkpoints and exact resume work for it as they do for ours.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use tallow_train::{Optimizer, OptimizerState, Result};
///
/// /// Follows the sign of the gradient, as signSGD does. It remembers nothing.
/// struct SignSgd { lr: f64 }
///
/// impl Optimizer for SignSgd {
///     fn algorithm(&self) -> &str { "sign_sgd" }
///     fn lr(&self) -> f64 { self.lr }
///     fn set_lr(&mut self, lr: f64) { self.lr = lr }
///     fn update(&mut self, _name: &str, parameter: &Var, grad: &Tensor) -> Result<()> {
///         let change = (grad.sign()? * self.lr)?;
///         parameter.set(&parameter.as_detached_tensor().sub(&change)?)?;
///         Ok(())
///     }
///     fn state(&self) -> OptimizerState { OptimizerState::new(self.algorithm()) }
///     fn load_state(&mut self, state: &OptimizerState) -> Result<()> { state.expect(self.algorithm()) }
/// }
///
/// # fn main() -> Result<()> {
/// let w = Var::new(&[1f32, -2.0], &Device::Cpu)?;
/// let mut grads = w.sqr()?.sum_all()?.backward()?;
/// SignSgd { lr: 0.5 }.step(&[("w".into(), w.clone())], &mut grads)?;
/// assert_eq!(w.to_vec1::<f32>()?, [0.5, -1.5]);
/// # Ok(())
/// # }
/// ```
pub trait Optimizer {
    /// The name of the update rule, which a checkpoint is checked against.
    fn algorithm(&self) -> &str;

    /// Checks the settings; a trainer asks before it begins.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) names the first setting that makes no sense.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The learning rate of the next update.
    fn lr(&self) -> f64;

    /// Sets the learning rate of the next update.
    fn set_lr(&mut self, lr: f64);

    /// Moves one parameter against its gradient, in place.
    ///
    /// # Errors
    ///
    /// What the computation gives; the parameter is unchanged then.
    fn update(&mut self, name: &str, parameter: &Var, grad: &Tensor) -> Result<()>;

    /// All that the next updates depend on. Its tensors are the live ones: later updates change them, so
    /// write them out or [copy](OptimizerState::deep_copy) them.
    fn state(&self) -> OptimizerState;

    /// Takes over a state given by [`state`](Optimizer::state), learning rate and other settings included.
    ///
    /// # Errors
    ///
    /// [`Error::OptimizerState`](crate::Error::OptimizerState) for the state of another algorithm or an incomplete
    /// one; the optimizer is unchanged then.
    fn load_state(&mut self, state: &OptimizerState) -> Result<()>;

    /// Updates each of `parameters` that has a gradient, in the order given, and says how many had one.
    ///
    /// A gradient leaves `grads` with its update, so that its memory is free for the next.
    ///
    /// # Errors
    ///
    /// As [`update`](Optimizer::update).
    fn step(&mut self, parameters: &[(String, Var)], grads: &mut GradStore) -> Result<usize> {
        let mut updated = 0;
        for (name, parameter) in parameters {
            if let Some(grad) = grads.remove(parameter) {
                self.update(name, parameter, &grad)?;
                updated += 1;
            }
        }
        Ok(updated)
    }
}

fn require_not_negative(what: &'static str, value: f64) -> Result<()> {
    let fits = value.is_finite() && value >= 0.0;
    Error::require(fits, what, "a number >= 0", &value)
}

fn require_below_1(what: &'static str, value: f64) -> Result<()> {
    let fits = (0.0..1.0).contains(&value);
    Error::require(fits, what, "at least 0 and below 1", &value)
}

/// A parameter that has a gradient.
struct Update<'a> {
    name: &'a str,
    parameter: &'a Var,
    grad: Tensor,
}

impl<'a> Update<'a> {
    fn new(name: &'a str, parameter: &'a Var, grad: &Tensor) -> Self {
        Self {
            name,
            parameter,
            grad: grad.clone(),
        }
    }
}

/// The parameters that have a gradient in `grads`, which loses them.
fn taken<'a>(parameters: &'a [(String, Var)], grads: &mut GradStore) -> Vec<Update<'a>> {
    let updates = parameters.iter().filter_map(|(name, parameter)| {
        Some(Update {
            grad: grads.remove(parameter)?,
            name,
            parameter,
        })
    });
    updates.collect()
}
