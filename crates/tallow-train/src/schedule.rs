//! Learning-rate schedules: [`LrSchedule`], a rate for every step.
//!
//! A schedule is plain data and a pure function of the step, so it is saved in a checkpoint as it is and needs no
//! state of its own. What follows a metric has one, and is [`ReduceOnPlateau`]; a function of your own is a [`LrSchedulerHook`].
//! When a step happens, and which optimizer hears of it, is the trainer's business.

mod check;
mod hook;
mod plateau;

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

pub use hook::LrSchedulerHook;
pub use plateau::{ReduceOnPlateau, Watched};

/// The learning rate as a function of the step, counted from 0 over the whole training.
///
/// Every schedule scales the optimizer's own rate, the *base rate*. The formulas are those of
/// `torch.optim.lr_scheduler`, called once a step; past its end a schedule stays at its last value.
///
/// ```
/// use tallow_train::LrSchedule;
///
/// // 10 steps of warm-up from a tenth of the rate, then half a cosine over 90 steps.
/// let schedule = LrSchedule::cosine(90).with_warmup(10, 0.1);
/// let base = 0.5;
/// assert_eq!(schedule.lr(base, 0), 0.05);
/// assert_eq!(schedule.lr(base, 10), 0.5);
/// assert_eq!(schedule.lr(base, 55), 0.25);
/// assert_eq!(schedule.lr(base, 1000), 0.0);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schedule", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum LrSchedule {
    /// The base rate throughout.
    Constant,
    /// PyTorch's `StepLR`: `base · gamma^⌊step / every⌋`.
    Step {
        /// Steps between two reductions.
        every: u64,
        /// What the rate is multiplied with at each.
        gamma: f64,
    },
    /// PyTorch's `CosineAnnealingLR`: from the base rate down to `min_lr` along half a cosine.
    Cosine {
        /// The step at which `min_lr` is reached (`T_max`).
        steps: u64,
        /// The last rate (`eta_min`), absolute.
        min_lr: f64,
    },
    /// PyTorch's `OneCycleLR` with the base rate as `max_lr`: up from `base / initial_divisor` in the first
    /// `warmup_fraction` of the steps, then down to `base / initial_divisor / final_divisor`.
    OneCycle {
        /// The steps of the whole cycle (`total_steps`).
        steps: u64,
        /// The share of the steps in which the rate rises (`pct_start`), from 0 to 1.
        warmup_fraction: f64,
        /// The shape of both slopes (`anneal_strategy`).
        anneal: Anneal,
        /// `div_factor`.
        initial_divisor: f64,
        /// `final_div_factor`.
        final_divisor: f64,
    },
    /// A linear rise from `start_factor · base` to the base rate, then another schedule from its step 0.
    /// PyTorch: `SequentialLR([LinearLR(start_factor, total_iters=steps), then], milestones=[steps])`.
    Warmup {
        /// How many steps the rise takes.
        steps: u64,
        /// The share of the base rate at step 0.
        start_factor: f64,
        /// What follows.
        then: Box<LrSchedule>,
    },
    /// PyTorch's `MultiStepLR`: multiplied with `gamma` at each milestone.
    MultiStep {
        /// The steps at which the rate changes.
        milestones: Vec<u64>,
        /// What the rate is multiplied with at each.
        gamma: f64,
    },
    /// PyTorch's `ExponentialLR`: `base · gamma^step`.
    Exponential {
        /// What the rate is multiplied with at every step.
        gamma: f64,
    },
    /// PyTorch's `CosineAnnealingWarmRestarts` (SGDR, Loshchilov and Hutter 2017): half a cosine again and again.
    CosineRestarts {
        /// The steps of the first cycle (`T_0`).
        first: u64,
        /// How many times longer each cycle is than the one before (`T_mult`), at least 1.
        growth: u64,
        /// The rate that a cycle falls to (`eta_min`), absolute.
        min_lr: f64,
    },
    /// PyTorch's `PolynomialLR`: `base · (1 − step / steps)^power`, down to 0.
    Polynomial {
        /// The step at which the rate is 0 (`total_iters`).
        steps: u64,
        /// 1 is a straight line.
        power: f64,
    },
    /// Schedules one after another, each from its step 0: PyTorch's `SequentialLR`.
    Sequence {
        /// Each schedule but the last, with the number of steps that it has.
        parts: Vec<(u64, LrSchedule)>,
        /// What follows for good.
        last: Box<LrSchedule>,
    },
}

/// The shape of a slope of [`LrSchedule::OneCycle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Anneal {
    /// Half a cosine.
    Cosine,
    /// A straight line.
    Linear,
}

impl Anneal {
    /// The value at `fraction` (0 to 1) of the way between `from` and `to`.
    fn between(self, from: f64, to: f64, fraction: f64) -> f64 {
        match self {
            Self::Cosine => to + (from - to) / 2.0 * ((PI * fraction).cos() + 1.0),
            Self::Linear => (to - from) * fraction + from,
        }
    }
}

impl LrSchedule {
    /// The base rate throughout.
    pub fn constant() -> Self {
        Self::Constant
    }

    /// Multiplies the rate with `gamma` every `every` steps.
    pub fn step(every: u64, gamma: f64) -> Self {
        Self::Step { every, gamma }
    }

    /// Half a cosine from the base rate to 0 over `steps` steps.
    pub fn cosine(steps: u64) -> Self {
        Self::cosine_to(steps, 0.0)
    }

    /// Half a cosine from the base rate to `min_lr` (absolute) over `steps` steps.
    pub fn cosine_to(steps: u64, min_lr: f64) -> Self {
        Self::Cosine { steps, min_lr }
    }

    /// One cycle over `steps` steps with PyTorch's defaults: a cosine up in the first 30 % from a 25th of the base
    /// rate, and a cosine down to a 10,000th of where it began. The momentum is left alone
    /// (PyTorch: `cycle_momentum=False`).
    pub fn one_cycle(steps: u64) -> Self {
        Self::OneCycle {
            steps,
            warmup_fraction: 0.3,
            anneal: Anneal::Cosine,
            initial_divisor: 25.0,
            final_divisor: 1e4,
        }
    }

    /// Puts a linear warm-up of `steps` steps, from `start_factor` times the base rate, before this schedule.
    #[must_use]
    pub fn with_warmup(self, steps: u64, start_factor: f64) -> Self {
        Self::Warmup {
            steps,
            start_factor,
            then: Box::new(self),
        }
    }

    /// Multiplies the rate with `gamma` at each of `milestones`.
    pub fn multi_step(milestones: impl Into<Vec<u64>>, gamma: f64) -> Self {
        Self::MultiStep {
            milestones: milestones.into(),
            gamma,
        }
    }

    /// Multiplies the rate with `gamma` at every step.
    pub fn exponential(gamma: f64) -> Self {
        Self::Exponential { gamma }
    }

    /// Half a cosine down to 0, again and again, each time `growth` times as long as the last.
    pub fn cosine_restarts(first: u64, growth: u64) -> Self {
        Self::CosineRestarts {
            first,
            growth,
            min_lr: 0.0,
        }
    }

    /// Down to 0 over `steps` steps; a power of 1 is a straight line.
    pub fn polynomial(steps: u64, power: f64) -> Self {
        Self::Polynomial { steps, power }
    }

    /// This schedule for `steps` steps, then another one from its step 0.
    ///
    /// ```
    /// use tallow_train::LrSchedule;
    ///
    /// let schedule = LrSchedule::constant().then_after(10, LrSchedule::cosine(90));
    /// assert_eq!(schedule.lr(0.5, 9), 0.5);
    /// assert_eq!(schedule.lr(0.5, 55), 0.25);
    /// ```
    #[must_use]
    pub fn then_after(self, steps: u64, next: Self) -> Self {
        Self::Sequence {
            parts: vec![(steps, self)],
            last: Box::new(next),
        }
    }

    /// The rate of step number `step`, counted from 0, for an optimizer whose own rate is `base`.
    pub fn lr(&self, base: f64, step: u64) -> f64 {
        match self {
            Self::Constant => base,
            Self::Step { every, gamma } => base * gamma.powf((step / (*every).max(1)) as f64),
            Self::Cosine { steps, min_lr } => {
                let fraction = step.min(*steps) as f64 / (*steps).max(1) as f64;
                half_cosine(base, *min_lr, fraction)
            }
            Self::OneCycle { .. } => self.one_cycle_lr(base, step),
            Self::Warmup {
                steps,
                start_factor,
                then,
            } => match step.checked_sub(*steps) {
                Some(after) => then.lr(base, after),
                None => {
                    let fraction = step as f64 / *steps as f64;
                    base * (start_factor + (1.0 - start_factor) * fraction)
                }
            },
            Self::MultiStep { milestones, gamma } => {
                let passed = milestones.iter().filter(|&&at| step >= at).count();
                base * gamma.powf(passed as f64)
            }
            Self::Exponential { gamma } => base * gamma.powf(step as f64),
            Self::CosineRestarts {
                first,
                growth,
                min_lr,
            } => {
                let (start, length) = cycle(*first, *growth, step);
                let fraction = (step - start) as f64 / length as f64;
                half_cosine(base, *min_lr, fraction)
            }
            Self::Polynomial { steps, power } => {
                let fraction = step.min(*steps) as f64 / (*steps).max(1) as f64;
                base * (1.0 - fraction).powf(*power)
            }
            Self::Sequence { parts, last } => {
                let mut step = step;
                for (steps, part) in parts {
                    match step.checked_sub(*steps) {
                        Some(after) => step = after,
                        None => return part.lr(base, step),
                    }
                }
                last.lr(base, step)
            }
        }
    }

    /// The rate of a one-cycle schedule; of any other, `base`.
    fn one_cycle_lr(&self, base: f64, step: u64) -> f64 {
        let Self::OneCycle {
            steps,
            warmup_fraction,
            anneal,
            initial_divisor,
            final_divisor,
        } = self
        else {
            return base;
        };
        let initial = base / initial_divisor;
        let last = steps.saturating_sub(1);
        let step = step.min(last) as f64;
        let last = last as f64;
        let peak = warmup_fraction * *steps as f64 - 1.0;
        if step < peak {
            anneal.between(initial, base, step / peak)
        } else if peak < last {
            let fraction = (step - peak) / (last - peak);
            anneal.between(base, initial / final_divisor, fraction)
        } else {
            base
        }
    }
}

/// From `base` down to `min_lr` along half a cosine.
fn half_cosine(base: f64, min_lr: f64, fraction: f64) -> f64 {
    min_lr + (base - min_lr) * (1.0 + (PI * fraction).cos()) / 2.0
}

/// Where the cycle that `step` falls into begins, and its length.
fn cycle(first: u64, growth: u64, step: u64) -> (u64, u64) {
    let (first, growth) = (first.max(1), growth.max(1));
    if growth == 1 {
        return (step / first * first, first);
    }
    let (mut start, mut length) = (0u64, first);
    while step - start >= length {
        start += length;
        match length.checked_mul(growth) {
            Some(longer) => length = longer,
            None => return (start, u64::MAX),
        }
    }
    (start, length)
}

/// Fails for a rate that no optimizer can take.
pub(crate) fn require_rate(lr: f64) -> Result<()> {
    let fits = lr.is_finite() && lr >= 0.0;
    Error::require(fits, "a learning rate", "a number >= 0", &lr)
}
