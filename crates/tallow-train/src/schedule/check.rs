//! Which schedules make sense.

use super::LrSchedule;
use crate::{Error, Result};

impl LrSchedule {
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
            Self::MultiStep { gamma, .. } => {
                let what = "gamma of a multi-step schedule";
                Error::require(not_negative(*gamma), what, "a number >= 0", gamma)
            }
            Self::Exponential { gamma } => {
                let what = "gamma of an exponential schedule";
                Error::require(not_negative(*gamma), what, "a number >= 0", gamma)
            }
            Self::CosineRestarts {
                first,
                growth,
                min_lr,
            } => {
                positive_steps("the first cycle of a cosine with restarts", *first)?;
                positive_steps("the growth of a cosine with restarts", *growth)?;
                let what = "the last rate of a cosine with restarts";
                Error::require(not_negative(*min_lr), what, "a number >= 0", min_lr)
            }
            Self::Polynomial { steps, power } => {
                positive_steps("the length of a polynomial schedule", *steps)?;
                let what = "the power of a polynomial schedule";
                Error::require(not_negative(*power), what, "a number >= 0", power)
            }
            Self::Sequence { parts, last } => {
                for (steps, part) in parts {
                    positive_steps("the length of a part of a sequence", *steps)?;
                    part.check()?;
                }
                last.check()
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
