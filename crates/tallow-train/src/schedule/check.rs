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
        match self {
            Self::Constant => Ok(()),
            Self::Step { every, gamma } => {
                positive_steps("the interval of a step schedule", *every)?;
                not_negative("gamma of a step schedule", *gamma)
            }
            Self::Cosine { steps, min_lr } => {
                positive_steps("the length of a cosine schedule", *steps)?;
                not_negative("the last rate of a cosine schedule", *min_lr)
            }
            Self::OneCycle { .. } => self.check_one_cycle(),
            Self::MultiStep { gamma, .. } => not_negative("gamma of a multi-step schedule", *gamma),
            Self::Exponential { gamma } => not_negative("gamma of an exponential schedule", *gamma),
            Self::CosineRestarts {
                first,
                growth,
                min_lr,
            } => {
                positive_steps("the first cycle of a cosine with restarts", *first)?;
                positive_steps("the growth of a cosine with restarts", *growth)?;
                not_negative("the last rate of a cosine with restarts", *min_lr)
            }
            Self::Polynomial { steps, power } => {
                positive_steps("the length of a polynomial schedule", *steps)?;
                not_negative("the power of a polynomial schedule", *power)
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
                not_negative("the start factor of a warm-up", *start_factor)?;
                then.check()
            }
        }
    }

    fn check_one_cycle(&self) -> Result<()> {
        let Self::OneCycle {
            steps,
            warmup_fraction,
            initial_divisor,
            final_divisor,
            ..
        } = self
        else {
            return Ok(());
        };
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
}

fn positive_steps(what: &'static str, steps: u64) -> Result<()> {
    Error::require(steps > 0, what, "at least 1 step", &steps)
}

fn not_negative(what: &'static str, value: f64) -> Result<()> {
    let fits = value.is_finite() && value >= 0.0;
    Error::require(fits, what, "a number >= 0", &value)
}
