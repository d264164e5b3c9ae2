//! [`TimeLimit`]: a training that ends in time.

use std::time::{Duration, Instant};

use crate::{Hook, HookContext, Result};

/// Ends a call of `fit` after the first step at which a time is over; checkpoints are written as at any end, and a resume
/// goes on from there.
///
/// An evaluation is not cut short: leave room for one.
///
/// ```
/// use std::time::Duration;
/// use tallow_train::hooks::TimeLimit;
///
/// let hook = TimeLimit::new(Duration::from_secs(3 * 3600));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct TimeLimit {
    limit: Duration,
    start: Instant,
}

impl TimeLimit {
    /// Counts from the beginning of each call of `fit`.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            start: Instant::now(),
        }
    }

    fn check(&self, context: &mut HookContext<'_>) {
        if self.start.elapsed() >= self.limit {
            context.request_stop();
        }
    }
}

impl Hook for TimeLimit {
    fn on_fit_begin(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        self.start = Instant::now();
        Ok(())
    }

    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.check(context);
        Ok(())
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.check(context);
        Ok(())
    }
}
