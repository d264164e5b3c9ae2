//! Muon: orthogonalised momentum for matrices, AdamW for the rest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use tallow_tensor::update::{self, MuonUpdate, NewtonSchulz};

use super::groups::{Grouping, Predicate};
use super::{
    AdamW, Optimizer, OptimizerState, ParamGroups, ParameterState, Update, require_below_1,
    require_not_negative, taken,
};
use crate::{Error, Result};

const ALGORITHM: &str = "muon";
const MOMENTUM_BUFFER: &str = "momentum_buffer";
/// How the settings of the AdamW begin in a state.
const REST: &str = "rest.";

/// Momentum that is made orthogonal before it is followed (Jordan et al. 2024), as `torch.optim.Muon`; AdamW for what is no
/// matrix.
///
/// With gradient `g` of a weight `w`, a matrix `[out, rest]` (a convolution's `[out, in, h, w]` is `[out, in h w]`):
///
/// ```text
/// b ← momentum · b + (1 − momentum) · g
/// u ← orthogonal(momentum · b + (1 − momentum) · g)        (five Newton-Schulz iterations; without Nesterov, of b)
/// w ← (1 − lr · weight_decay) · w − lr · adjustment · u
/// ```
///
/// The [`adjustment`](MuonAdjustment) is for the shape of the matrix. PyTorch iterates in bfloat16, this in f32, so that the two agree to
/// some percent of a step and not to the last digit.
///
/// Biases, norms and whatever else has one dimension go to the AdamW of [`rest`](Muon::rest), and so should embeddings and the
/// classifier, see [`leave`](Muon::leave). The schedule scales both rates alike.
///
/// ```
/// use tallow_train::{AdamW, Muon};
///
/// let optimizer = Muon::new(0.02)
///     .rest(AdamW::new(3e-4))
///     .leave(|name, _| name.starts_with("fc."));
/// # let _ = optimizer;
/// ```
#[derive(Debug)]
pub struct Muon {
    settings: Settings,
    groups: Grouping,
    memories: HashMap<String, Memory>,
    rest: AdamW,
    /// The rate of the AdamW as a multiple of this one's.
    rest_ratio: f64,
    leave: Leave,
}

#[derive(Clone)]
struct Leave(Arc<Predicate>);

impl std::fmt::Debug for Leave {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leave")
    }
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    lr: f64,
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
    steps: u32,
    adjustment: MuonAdjustment,
}

#[derive(Debug)]
struct Memory {
    step: u64,
    buffer: Var,
}

/// How the learning rate of [`Muon`] is fitted to a matrix `[out, in]`: PyTorch's `adjust_lr_fn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MuonAdjustment {
    /// `√max(1, out / in)`, Jordan's; PyTorch's "original".
    #[default]
    Original,
    /// `0.2 √max(out, in)`, for the rates and decays that suit AdamW (Liu et al. 2025); PyTorch's "match_rms_adamw".
    MatchRmsAdamW,
}

impl MuonAdjustment {
    fn factor(self, rows: usize, columns: usize) -> f64 {
        let (rows, columns) = (rows as f64, columns.max(1) as f64);
        match self {
            Self::Original => (rows / columns).max(1.0).sqrt(),
            Self::MatchRmsAdamW => 0.2 * rows.max(columns).sqrt(),
        }
    }

    fn code(self) -> f64 {
        match self {
            Self::Original => 0.0,
            Self::MatchRmsAdamW => 1.0,
        }
    }

    fn of_code(code: f64) -> Result<Self> {
        let known = [Self::Original, Self::MatchRmsAdamW];
        known
            .into_iter()
            .find(|each| each.code() == code)
            .ok_or_else(|| {
                Error::OptimizerState(format!(
                    "no adjustment of Muon has the number {code}; update Tallow"
                ))
            })
    }
}

impl Muon {
    /// With learning rate `lr`, and PyTorch's other defaults: momentum 0.95 in Nesterov's form, weight decay 0.1, five iterations;
    /// and an AdamW of rate 3e-4 for the rest.
    pub fn new(lr: f64) -> Self {
        let settings = Settings {
            lr,
            momentum: 0.95,
            nesterov: true,
            weight_decay: 0.1,
            steps: 5,
            adjustment: MuonAdjustment::Original,
        };
        let muon = Self {
            settings,
            groups: Grouping::default(),
            memories: HashMap::new(),
            rest: AdamW::default(),
            rest_ratio: 1.0,
            leave: Leave(Arc::new(|_, _| false)),
        };
        muon.rest(AdamW::new(3e-4))
    }

    /// Sets the optimizer of what is no matrix, or [left](Muon::leave); its rate keeps its ratio to this one's.
    #[must_use]
    pub fn rest(mut self, rest: AdamW) -> Self {
        let lr = self.settings.lr;
        self.rest_ratio = if lr > 0.0 { rest.lr() / lr } else { 1.0 };
        self.rest = rest.groups(self.groups.rules.clone());
        self
    }

    /// Leaves weights to the AdamW whose name and shape `leave` says yes to.
    #[must_use]
    pub fn leave(mut self, leave: impl Fn(&str, &[usize]) -> bool + 'static) -> Self {
        self.leave = Leave(Arc::new(leave));
        self
    }

    /// Sets the share of the momentum that is carried on.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.settings.momentum = momentum;
        self
    }

    /// Switches Nesterov's form of momentum on or off.
    #[must_use]
    pub fn nesterov(mut self, nesterov: bool) -> Self {
        self.settings.nesterov = nesterov;
        self
    }

    /// Sets the weight decay of matrices.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.settings.weight_decay = weight_decay;
        self
    }

    /// Sets how many Newton-Schulz iterations there are.
    #[must_use]
    pub fn newton_schulz_steps(mut self, steps: u32) -> Self {
        self.settings.steps = steps;
        self
    }

    /// Sets how the rate is fitted to the shape of a matrix.
    #[must_use]
    pub fn adjustment(mut self, adjustment: MuonAdjustment) -> Self {
        self.settings.adjustment = adjustment;
        self
    }

    /// Sets which parameters have options of their own, here and in the AdamW of the rest.
    #[must_use]
    pub fn groups(mut self, groups: ParamGroups) -> Self {
        self.rest = std::mem::take(&mut self.rest).groups(groups.clone());
        self.groups = Grouping::new(groups);
        self
    }

    /// Whether a parameter is this optimizer's own. What it was once, it stays.
    fn is_own(&self, name: &str, parameter: &Var) -> bool {
        self.memories.contains_key(name)
            || !self.rest.knows(name)
                && parameter.rank() >= 2
                && !(self.leave.0)(name, parameter.dims())
    }

    fn update_matrix(&mut self, name: &str, parameter: &Var, grad: &Tensor) -> Result<()> {
        self.groups.meet(name, parameter);
        if !self.memories.contains_key(name) {
            let buffer = Var::from_tensor(&parameter.zeros_like()?)?;
            self.memories
                .insert(name.to_string(), Memory { step: 0, buffer });
        }
        let Settings {
            lr,
            momentum,
            nesterov,
            weight_decay,
            steps,
            adjustment,
        } = self.settings;
        let (lr, weight_decay) = self.groups.of(name, lr, weight_decay);
        let rows = parameter.dims().first().copied().unwrap_or(1);
        let columns = parameter.elem_count() / rows.max(1);
        let step = MuonUpdate {
            lr,
            step_lr: lr * adjustment.factor(rows, columns),
            momentum,
            nesterov,
            weight_decay,
            newton_schulz: NewtonSchulz {
                steps,
                ..NewtonSchulz::default()
            },
        };
        if let Some(memory) = self.memories.get_mut(name) {
            update::muon(parameter, grad, &memory.buffer, &step)?;
            memory.step += 1;
        }
        Ok(())
    }
}

impl Optimizer for Muon {
    fn algorithm(&self) -> &str {
        ALGORITHM
    }

    fn check(&self) -> Result<()> {
        require_not_negative("the learning rate of Muon", self.settings.lr)?;
        require_below_1("the momentum of Muon", self.settings.momentum)?;
        require_not_negative("the weight decay of Muon", self.settings.weight_decay)?;
        self.groups.rules.check()?;
        self.rest.check()
    }

    fn lr(&self) -> f64 {
        self.settings.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.settings.lr = lr;
        self.rest.set_lr(lr * self.rest_ratio);
    }

    fn update(&mut self, name: &str, parameter: &Var, grad: &Tensor) -> Result<()> {
        if self.is_own(name, parameter) {
            self.update_matrix(name, parameter, grad)
        } else {
            self.rest.update(name, parameter, grad)
        }
    }

    fn step(&mut self, parameters: &[(String, Var)], grads: &mut GradStore) -> Result<usize> {
        let updates = taken(parameters, grads);
        let count = updates.len();
        let own = |update: &Update<'_>| self.is_own(update.name, update.parameter);
        let (matrices, rest): (Vec<_>, Vec<_>) = updates.into_iter().partition(own);
        for Update {
            name,
            parameter,
            grad,
        } in matrices
        {
            self.update_matrix(name, parameter, &grad)?;
        }
        self.rest.apply(&rest)?;
        Ok(count)
    }

    fn state(&self) -> OptimizerState {
        let Settings {
            lr,
            momentum,
            nesterov,
            weight_decay,
            steps,
            adjustment,
        } = self.settings;
        let mut state = OptimizerState::with_settings(
            ALGORITHM,
            [
                ("lr", lr),
                ("momentum", momentum),
                ("nesterov", f64::from(u8::from(nesterov))),
                ("weight_decay", weight_decay),
                ("ns_steps", f64::from(steps)),
                ("adjust_lr_fn", adjustment.code()),
                ("rest_ratio", self.rest_ratio),
            ],
        );
        let own = self.memories.iter().map(|(name, memory)| {
            let buffer = memory.buffer.as_detached_tensor();
            let state = ParameterState {
                step: memory.step,
                tensors: [(MOMENTUM_BUFFER.to_string(), buffer)].into(),
            };
            (name.clone(), state)
        });
        state.parameters = own.collect();
        self.groups.write(&mut state);
        let rest = self.rest.state();
        state.parameters.extend(rest.parameters);
        let settings = rest.settings.into_iter();
        state
            .settings
            .extend(settings.map(|(name, value)| (format!("{REST}{name}"), value)));
        state
    }

    fn load_state(&mut self, state: &OptimizerState) -> Result<()> {
        state.expect(ALGORITHM)?;
        let settings = Settings {
            lr: state.setting("lr")?,
            momentum: state.setting("momentum")?,
            nesterov: state.setting("nesterov")? != 0.0,
            weight_decay: state.setting("weight_decay")?,
            steps: state.setting("ns_steps")? as u32,
            adjustment: MuonAdjustment::of_code(state.setting("adjust_lr_fn")?)?,
        };
        let rest_ratio = state.setting("rest_ratio")?;
        let is_own = |each: &ParameterState| each.tensors.contains_key(MOMENTUM_BUFFER);
        let (own, rest): (BTreeMap<_, _>, BTreeMap<_, _>) = state
            .parameters
            .clone()
            .into_iter()
            .partition(|(_, each)| is_own(each));
        let read = |(name, state): (&String, &ParameterState)| {
            let buffer = state.owned(name, MOMENTUM_BUFFER)?;
            Ok((
                name.clone(),
                Memory {
                    step: state.step,
                    buffer,
                },
            ))
        };
        let memories = own.iter().map(read).collect::<Result<_>>()?;
        let mut rest_state = OptimizerState::new(self.rest.algorithm());
        let settings_of_rest = state
            .settings
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(REST)?.to_string(), *value)));
        rest_state.settings = settings_of_rest.collect();
        rest_state.parameters = rest;
        self.rest.load_state(&rest_state)?;
        let own = OptimizerState {
            parameters: own,
            settings: state.settings.clone(),
            ..OptimizerState::default()
        };
        self.groups = self.groups.restored(&own);
        self.settings = settings;
        self.memories = memories;
        self.rest_ratio = rest_ratio;
        Ok(())
    }
}
