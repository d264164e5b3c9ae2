//! Leaves the model as it was: random state and buffers now, parameters where a run changes them on purpose.

use candle_core::{Tensor, Var};

use crate::params::{Kind, Params};
use crate::{Result, rng};

/// Puts back the thread's random state and the given variables when dropped, however the capture ends.
pub(super) struct Guard {
    rng: rng::State,
    values: Vec<(Var, Tensor)>,
}

impl Guard {
    /// Remembers the random state and all buffers. Operations change no buffer while they are recorded; a model's own
    /// code might.
    pub(super) fn new(params: Option<&Params>) -> Result<Self> {
        let entries = params.into_iter().flatten();
        let buffers = entries.filter(|entry| entry.kind == Kind::Buffer);
        Self::of(buffers.map(|entry| entry.var).collect())
    }

    /// Remembers the random state and these variables.
    pub(super) fn of(vars: Vec<Var>) -> Result<Self> {
        let values = vars.into_iter().map(|var| {
            let copy = var.as_detached_tensor().force_contiguous()?;
            Ok((var, copy))
        });
        Ok(Self {
            rng: rng::state(),
            values: values.collect::<Result<_>>()?,
        })
    }

    /// The variables and what they held.
    pub(super) fn values(&self) -> &[(Var, Tensor)] {
        &self.values
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        rng::restore(self.rng);
        for (var, value) in &self.values {
            // Shape and type are the variable's own, so this can't fail; a destructor couldn't report it anyway.
            let _ = var.set(value);
        }
    }
}

/// Starts the present step over, so that each recorded run makes the same draws.
pub(super) fn restart_draws() {
    let state = rng::state();
    rng::begin_step(state.seed, state.step);
}
