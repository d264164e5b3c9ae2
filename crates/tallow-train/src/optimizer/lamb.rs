//! LAMB: Adam for large batches.

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use tallow_tensor::update::{self, LambUpdate};

use super::groups::Grouping;
use super::moments::AllMoments;
use super::{
    Optimizer, OptimizerState, ParamGroups, Update, require_below_1, require_not_negative, taken,
};
use crate::Result;

const ALGORITHM: &str = "lamb";

/// Adam whose steps are scaled to the norms of the parameters, for large batches (You et al. 2020).
///
/// With gradient `g` at update `t` of a parameter `w`:
///
/// ```text
/// m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
/// u ← m / (1 − β₁ᵗ) / (√v / √(1 − β₂ᵗ) + ε) + weight_decay · w
/// w ← w − lr · ‖w‖ / ‖u‖ · u          (without the ratio where a norm is 0)
/// ```
///
/// As in NVIDIA's and timm's, parameters without weight decay follow `u` as it is: leave norms and biases out with
/// [`ParamGroups::no_decay_on_norms_and_biases`], or scale all with [`always_adapt`](Lamb::always_adapt). Gradients aren't
/// clipped here, see [`GradientClip`](crate::GradientClip).
///
/// ```
/// use candle_core::{Device, Var};
/// use tallow_train::{Lamb, Optimizer};
///
/// # fn main() -> tallow_train::Result<()> {
/// let w = Var::new(&[3f32, -4.0], &Device::Cpu)?;
/// let mut lamb = Lamb::new(0.1).weight_decay(0.0).always_adapt(true);
/// let mut grads = w.sqr()?.sum_all()?.backward()?;
/// lamb.step(&[("w".into(), w.clone())], &mut grads)?;
///
/// // The step is a tenth of the norm 5, along (1, −1) / √2.
/// let length = 0.5 / 2f32.sqrt();
/// let w = w.to_vec1::<f32>()?;
/// assert!((w[0] - (3.0 - length)).abs() < 1e-5 && (w[1] + (4.0 - length)).abs() < 1e-5);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Lamb {
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
    always_adapt: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: [0.9, 0.999],
            eps: 1e-6,
            weight_decay: 1e-2,
            always_adapt: false,
        }
    }
}

impl Lamb {
    /// With learning rate `lr`, β 0.9 and 0.999, ε 1e-6, weight decay 0.01.
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

    /// Sets the weight decay, a share of the parameter that is added to its step.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.settings.weight_decay = weight_decay;
        self
    }

    /// Sets whether parameters without weight decay are scaled as well; not by default.
    #[must_use]
    pub fn always_adapt(mut self, always: bool) -> Self {
        self.settings.always_adapt = always;
        self
    }

    /// Sets which parameters have options of their own.
    #[must_use]
    pub fn groups(mut self, groups: ParamGroups) -> Self {
        self.groups = Grouping::new(groups);
        self
    }

    fn apply(&mut self, updates: &[Update<'_>]) -> Result<()> {
        let Settings {
            lr,
            betas: [beta1, beta2],
            eps,
            weight_decay,
            always_adapt,
        } = self.settings;
        let settings = |(lr, weight_decay), step| LambUpdate {
            lr,
            beta1,
            beta2,
            eps,
            weight_decay,
            adapt: always_adapt || weight_decay != 0.0,
            step,
        };
        let options = (lr, weight_decay);
        let Self {
            groups, moments, ..
        } = self;
        moments.apply(groups, updates, options, settings, update::lamb_all)
    }
}

impl Optimizer for Lamb {
    fn algorithm(&self) -> &str {
        ALGORITHM
    }

    fn check(&self) -> Result<()> {
        let Settings {
            lr,
            betas,
            eps,
            weight_decay,
            ..
        } = self.settings;
        require_not_negative("the learning rate of LAMB", lr)?;
        for beta in betas {
            require_below_1("a decay rate of LAMB", beta)?;
        }
        require_not_negative("epsilon of LAMB", eps)?;
        require_not_negative("the weight decay of LAMB", weight_decay)?;
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
            always_adapt,
        } = self.settings;
        let mut state = OptimizerState::with_settings(
            ALGORITHM,
            [
                ("lr", lr),
                ("beta1", beta1),
                ("beta2", beta2),
                ("eps", eps),
                ("weight_decay", weight_decay),
                ("always_adapt", f64::from(u8::from(always_adapt))),
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
            always_adapt: state.setting("always_adapt")? != 0.0,
        };
        *self = Self {
            settings,
            moments: AllMoments::load(state)?,
            groups: self.groups.restored(state),
        };
        Ok(())
    }
}
