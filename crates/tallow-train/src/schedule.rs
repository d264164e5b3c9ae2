//! Learning-rate schedules: [`LrSchedule`], a rate for every step.
//!
//! A schedule is plain data and a pure function of the step, so it is saved in a checkpoint as it is and needs no
//! state of its own. When a step happens, and which optimizer hears of it, is the trainer's business.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

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

    /// The rate of step number `step`, counted from 0, for an optimizer whose own rate is `base`.
    pub fn lr(&self, base: f64, step: u64) -> f64 {
        match self {
            Self::Constant => base,
            Self::Step { every, gamma } => base * gamma.powf((step / (*every).max(1)) as f64),
            Self::Cosine { steps, min_lr } => {
                let fraction = step.min(*steps) as f64 / (*steps).max(1) as f64;
                min_lr + (base - min_lr) * (1.0 + (PI * fraction).cos()) / 2.0
            }
            Self::OneCycle {
                steps,
                warmup_fraction,
                anneal,
                initial_divisor,
                final_divisor,
            } => {
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
        }
    }

    /// Checks the settings of this schedule.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] names the first setting that makes no sense, such as a cycle of 0 steps.
    pub fn check(&self) -> Result<()> {
        let not_negative = |value: f64| value.is_finite() && value >= 0.0;
        match self {
            Self::Constant => Ok(()),
            Self::Step { every, gamma } => {
                positive_steps("the interval of a step schedule", *every)?;
                Error::require(
                    not_negative(*gamma),
                    "gamma of a step schedule",
                    "a number >= 0",
                    gamma,
                )
            }
            Self::Cosine { steps, min_lr } => {
                positive_steps("the length of a cosine schedule", *steps)?;
                let what = "the last rate of a cosine schedule";
                Error::require(not_negative(*min_lr), what, "a number >= 0", min_lr)
            }
            Self::OneCycle {
                steps,
                warmup_fraction,
                initial_divisor,
                final_divisor,
                ..
            } => {
                positive_steps("the length of a one-cycle schedule", *steps)?;
                let what = "the warm-up fraction of a one-cycle schedule";
                let fits = (0.0..=1.0).contains(warmup_fraction);
                Error::require(fits, what, "a number from 0 to 1", warmup_fraction)?;
                for divisor in [initial_divisor, final_divisor] {
                    let fits = divisor.is_finite() && *divisor > 0.0;
                    let what = "a divisor of a one-cycle schedule";
                    Error::require(fits, what, "a number > 0", divisor)?;
                }
                Ok(())
            }
            Self::Warmup {
                start_factor, then, ..
            } => {
                let what = "the start factor of a warm-up";
                Error::require(
                    not_negative(*start_factor),
                    what,
                    "a number >= 0",
                    start_factor,
                )?;
                then.check()
            }
        }
    }
}

fn positive_steps(what: &'static str, steps: u64) -> Result<()> {
    Error::require(steps > 0, what, "at least 1 step", &steps)
}
