//! What to say about a loss that is not finite: where the first bad value is found.
//!
//! Looked at in the order in which a bad value would spread: images, parameters, modules, outputs, loss.

use candle_core::Tensor;
use candle_nn::ModuleT;
use tallow_data::Batch;
use tallow_tensor::nonfinite::{self, Origin};
use tallow_tensor::params::{Entry, Kind};
use tallow_tensor::{no_grad, rng, sync};

use super::Trainer;
use crate::error::BadValue;
use crate::{Error, Result};

/// The pass in which the loss came out bad.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pass {
    Training,
    Evaluation { batch: usize },
}

impl<M: ModuleT> Trainer<M> {
    /// The error for a `loss` that is not finite; `outputs` are the model's for `batch`.
    pub(super) fn diagnose(&self, pass: Pass, loss: f64, batch: &Batch, outputs: &Tensor) -> Error {
        let position = &self.state.position;
        let place = match pass {
            Pass::Training => format!("step {} (epoch {})", position.step, position.epoch),
            Pass::Evaluation { batch } => format!("evaluation batch {batch}"),
        };
        match self.bad_value(pass, batch, outputs) {
            Ok(cause) => Error::NonFinite { place, loss, cause },
            Err(error) => error,
        }
    }

    fn bad_value(&self, pass: Pass, batch: &Batch, outputs: &Tensor) -> Result<BadValue> {
        let count = nonfinite::count(&batch.images)?;
        if count > 0 {
            return Ok(BadValue::Images { count });
        }
        for Entry {
            name, var, kind, ..
        } in &self.state.params
        {
            // In training the forward pass has just written the buffers: they show the fault, they aren't its origin.
            let count = match (pass, kind) {
                (Pass::Training, Kind::Buffer) => 0,
                _ => nonfinite::count(&var)?,
            };
            if count > 0 {
                return Ok(BadValue::Parameter { name, count });
            }
        }
        let (again, origin) = self.watched_pass(pass, batch)?;
        if let Some(Origin {
            module, operation, ..
        }) = origin
        {
            return Ok(BadValue::Module { module, operation });
        }
        match nonfinite::count(outputs)? {
            0 => Ok(BadValue::Loss),
            count if self.compiled.is_some() && nonfinite::count(&again)? == 0 => {
                Ok(BadValue::Compiled { count })
            }
            count => Ok(BadValue::Outputs { count }),
        }
    }

    /// Runs the pass again as the model is written, compiled or not, with the same draws, and looks at every result.
    fn watched_pass(&self, pass: Pass, batch: &Batch) -> Result<(Tensor, Option<Origin>)> {
        let train = matches!(pass, Pass::Training);
        if train {
            let rng::State { seed, step, .. } = rng::state();
            rng::begin_step(seed, step);
        }
        let _guard = no_grad::enter();
        // Other ranks don't do this pass.
        let _own = sync::continue_with(None);
        let (outputs, origin) = nonfinite::first_in(|| self.model.forward_t(&batch.images, train));
        Ok((outputs?, origin))
    }
}
