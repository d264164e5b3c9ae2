//! AdamW: Adam with decoupled weight decay.

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use tallow_tensor::update::{self, AdamWUpdate};

use super::groups::Grouping;
use super::moments::AllMoments;
use super::{
    Optimizer, OptimizerState, ParamGroups, Update, require_below_1, require_not_negative, taken,
};
use crate::Result;

const ALGORITHM: &str = "adamw";

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019), as `torch.optim.AdamW`.
///
/// With gradient `g` at update `t` of a parameter `w`:
///
/// ```text
/// w ← w · (1 − lr · weight_decay)
/// m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
/// w ← w − lr / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)
/// ```
///
/// On the CPU in f32 the three lines are one pass over memory; elsewhere they are candle's arithmetic.
///
/// ```
/// use candle_core::{Device, Var};
/// use tallow_train::{AdamW, Optimizer};
///
/// # fn main() -> tallow_train::Result<()> {
/// let w = Var::new(&[1f32, -2.0], &Device::Cpu)?;
/// let mut adam = AdamW::new(0.1).weight_decay(0.0);
/// let mut grads = w.sqr()?.sum_all()?.backward()?;
/// adam.step(&[("w".into(), w.clone())], &mut grads)?;
///
/// let w = w.to_vec1::<f32>()?; // the first step is lr long
/// assert!((w[0] - 0.9).abs() < 1e-6 && (w[1] + 1.9).abs() < 1e-6);
/// assert_eq!(adam.state().parameters["w"].step, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct AdamW {
    settings: Settings,
    groups: Grouping,
    moments: AllMoments,
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    lr: f64,
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 1e-2,
        }
    }
}

impl AdamW {
    /// With learning rate `lr` and PyTorch's other defaults: β 0.9 and 0.999, ε 1e-8, weight decay 0.01.
    pub fn new(lr: f64) -> Self {
        let settings = Settings {
            lr,
            ..Settings::default()
        };
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Sets the decay rates of the two moments.
    #[must_use]
    pub fn betas(mut self, beta1: f64, beta2: f64) -> Self {
        self.settings.betas = [beta1, beta2];
        self
    }

    /// Sets what is added to the denominator.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Self {
        self.settings.eps = eps;
        self
    }

    /// Sets the weight decay; each update shrinks a parameter by `lr · weight_decay` of itself.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.settings.weight_decay = weight_decay;
        self
    }

    /// Sets which parameters have options of their own.
    #[must_use]
    pub fn groups(mut self, groups: ParamGroups) -> Self {
        self.groups = Grouping::new(groups);
        self
    }

    /// Whether a parameter was ever updated.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.moments.get(name).is_some()
    }

    /// Updates all of these parameters in one pass.
    pub(super) fn apply(&mut self, updates: &[Update<'_>]) -> Result<()> {
        let Settings {
            lr,
            betas: [beta1, beta2],
            eps,
            weight_decay,
        } = self.settings;
        let settings = |(lr, weight_decay), step| AdamWUpdate {
            lr,
            beta1,
            beta2,
            eps,
            weight_decay,
            step,
        };
        let options = (lr, weight_decay);
        let Self {
            groups, moments, ..
        } = self;
        moments.apply(groups, updates, options, settings, update::adamw_all)
    }
}

impl Optimizer for AdamW {
    fn algorithm(&self) -> &str {
        ALGORITHM
    }

    fn check(&self) -> Result<()> {
        let Settings {
            lr,
            betas,
            eps,
            weight_decay,
        } = self.settings;
        require_not_negative("the learning rate of AdamW", lr)?;
        for beta in betas {
            require_below_1("a decay rate of AdamW", beta)?;
        }
        require_not_negative("epsilon of AdamW", eps)?;
        require_not_negative("the weight decay of AdamW", weight_decay)?;
        self.groups.rules.check()
    }

    fn lr(&self) -> f64 {
        self.settings.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.settings.lr = lr;
    }

    fn update(&mut self, name: &str, parameter: &Var, grad: &Tensor) -> Result<()> {
        self.apply(&[Update::new(name, parameter, grad)])
    }

    fn step(&mut self, parameters: &[(String, Var)], grads: &mut GradStore) -> Result<usize> {
        let updates = taken(parameters, grads);
        self.apply(&updates)?;
        Ok(updates.len())
    }

    fn state(&self) -> OptimizerState {
        let Settings {
            lr,
            betas: [beta1, beta2],
            eps,
            weight_decay,
        } = self.settings;
        let mut state = OptimizerState::with_settings(
            ALGORITHM,
            [
                ("lr", lr),
                ("beta1", beta1),
                ("beta2", beta2),
                ("eps", eps),
                ("weight_decay", weight_decay),
            ],
        );
        state.parameters = self.moments.state();
        self.groups.write(&mut state);
        state
    }

    fn load_state(&mut self, state: &OptimizerState) -> Result<()> {
        state.expect(ALGORITHM)?;
        let settings = Settings {
            lr: state.setting("lr")?,
            betas: [state.setting("beta1")?, state.setting("beta2")?],
            eps: state.setting("eps")?,
            weight_decay: state.setting("weight_decay")?,
        };
        *self = Self {
            settings,
            moments: AllMoments::load(state)?,
            groups: self.groups.restored(state),
        };
        Ok(())
    }
}
