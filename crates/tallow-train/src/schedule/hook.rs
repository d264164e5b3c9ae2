//! A schedule of your own as a hook: [`LrSchedulerHook`].

use crate::{Hook, HookContext, Result};

/// Sets the learning rate of every step to what a function of (base rate, step) gives, in place of the trainer's schedule.
///
/// For a function that needs more than these two, write a [`Hook`] that calls [`HookContext::set_lr`] in `on_step_begin`. A function
/// can't be written to a file: give the hook again to a training that is resumed.
///
/// ```
/// use tallow_train::LrSchedulerHook;
///
/// /// Vaswani et al. 2017: a linear rise, then the inverse square root.
/// let inverse_root = LrSchedulerHook::new(|base, step| {
///     let step = step as f64 + 1.0;
///     base * (step / 400.0).min((400.0 / step).sqrt())
/// });
/// # let _ = inverse_root;
/// ```
pub struct LrSchedulerHook<F> {
    rate: F,
}

impl<F: FnMut(f64, u64) -> f64> LrSchedulerHook<F> {
    /// From the base rate and the step, counted from 0, to the rate.
    pub fn new(rate: F) -> Self {
        Self { rate }
    }
}

impl<F: FnMut(f64, u64) -> f64> Hook for LrSchedulerHook<F> {
    fn on_step_begin(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let lr = (self.rate)(context.base_lr(), context.step());
        crate::schedule::require_rate(lr)?;
        context.set_lr(lr);
        Ok(())
    }
}
