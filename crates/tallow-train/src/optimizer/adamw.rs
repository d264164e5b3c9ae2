//! AdamW: Adam with decoupled weight decay.

use std::collections::HashMap;

use candle_core::{Tensor, Var};
use tallow_tensor::update::{self, AdamWUpdate};

use super::{Optimizer, OptimizerState, ParameterState, require_not_negative};
use crate::{Error, Result};

const ALGORITHM: &str = "adamw";
const EXP_AVG: &str = "exp_avg";
const EXP_AVG_SQ: &str = "exp_avg_sq";

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
    moments: HashMap<String, Moments>,
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    lr: f64,
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
}

#[derive(Debug)]
struct Moments {
    step: u64,
    exp_avg: Var,
    exp_avg_sq: Var,
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
        Self {
            settings: Settings {
                lr,
                ..Settings::default()
            },
            moments: HashMap::new(),
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
            let fits = (0.0..1.0).contains(&beta);
            Error::require(
                fits,
                "a decay rate of AdamW",
                "at least 0 and below 1",
                &beta,
            )?;
        }
        require_not_negative("epsilon of AdamW", eps)?;
        require_not_negative("the weight decay of AdamW", weight_decay)
    }

    fn lr(&self) -> f64 {
        self.settings.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.settings.lr = lr;
    }

    fn update(&mut self, name: &str, parameter: &Var, grad: &Tensor) -> Result<()> {
        if !self.moments.contains_key(name) {
            let moments = Moments {
                step: 0,
                exp_avg: Var::from_tensor(&parameter.zeros_like()?)?,
                exp_avg_sq: Var::from_tensor(&parameter.zeros_like()?)?,
            };
            self.moments.insert(name.to_string(), moments);
        }
        let Some(moments) = self.moments.get_mut(name) else {
            return Ok(());
        };
        let Settings {
            lr,
            betas,
            eps,
            weight_decay,
        } = self.settings;
        let step = AdamWUpdate {
            lr,
            beta1: betas[0],
            beta2: betas[1],
            eps,
            weight_decay,
            step: moments.step + 1,
        };
        update::adamw(
            parameter,
            grad,
            &moments.exp_avg,
            &moments.exp_avg_sq,
            &step,
        )?;
        moments.step += 1;
        Ok(())
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
        let parameters = self.moments.iter().map(|(name, moments)| {
            let tensors = [
                (EXP_AVG.to_string(), moments.exp_avg.as_detached_tensor()),
                (
                    EXP_AVG_SQ.to_string(),
                    moments.exp_avg_sq.as_detached_tensor(),
                ),
            ];
            let state = ParameterState {
                step: moments.step,
                tensors: tensors.into(),
            };
            (name.clone(), state)
        });
        state.parameters = parameters.collect();
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
        let read = |(name, state): (&String, &ParameterState)| {
            let moments = Moments {
                step: state.step,
                exp_avg: state.owned(name, EXP_AVG)?,
                exp_avg_sq: state.owned(name, EXP_AVG_SQ)?,
            };
            Ok((name.clone(), moments))
        };
        let moments = state.parameters.iter().map(read).collect::<Result<_>>()?;
        *self = Self { settings, moments };
        Ok(())
    }
}
