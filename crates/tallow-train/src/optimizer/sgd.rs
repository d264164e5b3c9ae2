//! Stochastic gradient descent with momentum.

use std::collections::HashMap;

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use tallow_tensor::update::{self, Item, SgdUpdate};

use super::groups::Grouping;
use super::{
    Optimizer, OptimizerState, ParamGroups, ParameterState, Update, require_not_negative, taken,
};
use crate::{Error, Result};

const ALGORITHM: &str = "sgd";
const MOMENTUM_BUFFER: &str = "momentum_buffer";

/// Stochastic gradient descent, as `torch.optim.SGD`: momentum, Nesterov's form of it, dampening, weight decay.
///
/// With gradient `g` of a parameter `w`:
///
/// ```text
/// g ← g + weight_decay · w
/// b ← momentum · b + (1 − dampening) · g     (the first time: b ← g)
/// w ← w − lr · b                             (Nesterov: w ← w − lr · (g + momentum · b))
/// ```
///
/// ```
/// use candle_core::{Device, Var};
/// use tallow_train::{Optimizer, Sgd};
///
/// # fn main() -> tallow_train::Result<()> {
/// let w = Var::new(&[1f32, -2.0], &Device::Cpu)?;
/// let mut sgd = Sgd::new(0.25).momentum(0.5);
/// for _ in 0..2 {
///     let mut grads = w.sqr()?.sum_all()?.backward()?;
///     sgd.step(&[("w".into(), w.clone())], &mut grads)?;
/// }
/// assert_eq!(w.to_vec1::<f32>()?, [0.0, 0.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Sgd {
    settings: Settings,
    groups: Grouping,
    memories: HashMap<String, Memory>,
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    lr: f64,
    momentum: f64,
    dampening: f64,
    nesterov: bool,
    weight_decay: f64,
}

/// What is kept of a parameter; the buffer only with momentum.
#[derive(Debug)]
struct Memory {
    step: u64,
    buffer: Option<Var>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        }
    }
}

impl Sgd {
    /// With learning rate `lr`, and no momentum, dampening or weight decay.
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

    /// Sets the share of the last step that is carried on.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.settings.momentum = momentum;
        self
    }

    /// Sets the share by which a gradient is reduced on its way into the momentum.
    #[must_use]
    pub fn dampening(mut self, dampening: f64) -> Self {
        self.settings.dampening = dampening;
        self
    }

    /// Switches Nesterov's momentum on or off. It wants a momentum above 0 and no dampening.
    #[must_use]
    pub fn nesterov(mut self, nesterov: bool) -> Self {
        self.settings.nesterov = nesterov;
        self
    }

    /// Sets the weight decay: an L2 penalty, added to the gradient.
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

    /// Makes what is kept of a parameter; whether it is its first update with momentum.
    fn meet(&mut self, name: &str, parameter: &Var) -> Result<bool> {
        self.groups.meet(name, parameter);
        let memory = self.memories.entry(name.to_string()).or_insert(Memory {
            step: 0,
            buffer: None,
        });
        let first = memory.step == 0 || memory.buffer.is_none();
        if memory.buffer.is_none() && self.settings.momentum != 0.0 {
            memory.buffer = Some(Var::from_tensor(&parameter.zeros_like()?)?);
        }
        Ok(first)
    }

    /// Updates all of these parameters in one pass.
    fn apply(&mut self, updates: &[Update<'_>]) -> Result<()> {
        let firsts = updates
            .iter()
            .map(|update| self.meet(update.name, update.parameter));
        let firsts = firsts.collect::<Result<Vec<bool>>>()?;
        let items = updates.iter().zip(firsts).map(|(each, first)| {
            let Settings {
                lr,
                momentum,
                dampening,
                nesterov,
                weight_decay,
            } = self.settings;
            let (lr, weight_decay) = self.groups.of(each.name, lr, weight_decay);
            let update = SgdUpdate {
                lr,
                momentum,
                dampening,
                nesterov,
                weight_decay,
                first,
            };
            let buffer = self.memories.get(each.name);
            let buffer = buffer.and_then(|memory| memory.buffer.as_ref());
            Item {
                parameter: each.parameter,
                grad: &each.grad,
                state: buffer.filter(|_| momentum != 0.0).into_iter().collect(),
                update,
            }
        });
        update::sgd_all(&items.collect::<Vec<_>>())?;
        for update in updates {
            if let Some(memory) = self.memories.get_mut(update.name) {
                memory.step += 1;
            }
        }
        Ok(())
    }
}

impl Optimizer for Sgd {
    fn algorithm(&self) -> &str {
        ALGORITHM
    }

    fn check(&self) -> Result<()> {
        let Settings {
            lr,
            momentum,
            dampening,
            nesterov,
            weight_decay,
        } = self.settings;
        require_not_negative("the learning rate of SGD", lr)?;
        require_not_negative("the momentum of SGD", momentum)?;
        require_not_negative("the weight decay of SGD", weight_decay)?;
        Error::require(
            dampening.is_finite(),
            "the dampening of SGD",
            "finite",
            &dampening,
        )?;
        let fits = !nesterov || (momentum > 0.0 && dampening == 0.0);
        Error::require(
            fits,
            "Nesterov's momentum",
            "used with a momentum above 0 and no dampening",
            &format!("momentum {momentum} and dampening {dampening}"),
        )?;
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
            momentum,
            dampening,
            nesterov,
            weight_decay,
        } = self.settings;
        let mut state = OptimizerState::with_settings(
            ALGORITHM,
            [
                ("lr", lr),
                ("momentum", momentum),
                ("dampening", dampening),
                ("nesterov", f64::from(u8::from(nesterov))),
                ("weight_decay", weight_decay),
            ],
        );
        let parameters = self.memories.iter().map(|(name, memory)| {
            let buffer = memory.buffer.iter();
            let tensors = buffer.map(|b| (MOMENTUM_BUFFER.to_string(), b.as_detached_tensor()));
            let state = ParameterState {
                step: memory.step,
                tensors: tensors.collect(),
            };
            (name.clone(), state)
        });
        state.parameters = parameters.collect();
        self.groups.write(&mut state);
        state
    }

    fn load_state(&mut self, state: &OptimizerState) -> Result<()> {
        state.expect(ALGORITHM)?;
        let settings = Settings {
            lr: state.setting("lr")?,
            momentum: state.setting("momentum")?,
            dampening: state.setting("dampening")?,
            nesterov: state.setting("nesterov")? != 0.0,
            weight_decay: state.setting("weight_decay")?,
        };
        let read = |(name, state): (&String, &ParameterState)| {
            let has_buffer = state.tensors.contains_key(MOMENTUM_BUFFER);
            let buffer = has_buffer
                .then(|| state.owned(name, MOMENTUM_BUFFER))
                .transpose()?;
            let memory = Memory {
                step: state.step,
                buffer,
            };
            Ok((name.clone(), memory))
        };
        let memories = state.parameters.iter().map(read).collect::<Result<_>>()?;
        *self = Self {
            settings,
            memories,
            groups: self.groups.restored(state),
        };
        Ok(())
    }
}
