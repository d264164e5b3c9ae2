//! One training step: forward, loss, backward, update.

use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor};
use candle_nn::ModuleT;
use tallow_data::Batch;
use tallow_tensor::rng;

use super::{Trainer, diagnosis};
use crate::{Error, Result};

impl<M: ModuleT> Trainer<M> {
    pub(super) fn step(&mut self, batch: &Batch) -> Result<()> {
        let position = &self.state.position;
        let step = position.step;
        let schedule = position.schedule.as_ref();
        self.state.lr = schedule.map_or(position.base_lr, |s| s.lr(position.base_lr, step));
        self.notify(|hook, context| hook.on_step_begin(context))?;
        self.state.optimizer.set_lr(self.state.lr);

        rng::begin_step(self.state.position.seed, step);
        let Pass {
            loss: value,
            outputs,
            mut gradients,
        } = self.pass(batch)?;
        self.state.loss = Some(value);
        self.notify(|hook, context| hook.on_gradients(context, &mut gradients))?;
        let parameters = self.state.params.trainable();
        let updated = self.state.optimizer.step(&parameters, &mut gradients)?;
        if updated == 0 {
            let parameters = parameters.len();
            return Err(Error::NoGradient { step, parameters });
        }
        drop(gradients);

        let state = &mut self.state;
        let tally = &mut state.position.tally;
        tally.add(value, &outputs, &batch.labels, state.measure)?;
        state.position.step += 1;
        state.position.batch += 1;
        state.current_batch = state.position.batch;
        self.notify(|hook, context| hook.on_step_end(context))
    }
}

/// What the forward and the backward pass of a step give.
struct Pass {
    loss: f64,
    outputs: Tensor,
    gradients: GradStore,
}

impl<M: ModuleT> Trainer<M> {
    /// Forward, loss and backward: compiled, or on candle's tape.
    fn pass(&mut self, batch: &Batch) -> Result<Pass> {
        let Self {
            model,
            loss,
            compiled: Some(compiled),
            state,
            ..
        } = self
        else {
            return self.eager_pass(batch);
        };
        let forward = |images: &Tensor, labels: &Tensor| {
            let outputs = model.forward_t(images, true)?;
            Ok((
                loss.loss(&outputs, labels)
                    .map_err(candle_core::Error::wrap)?,
                outputs,
            ))
        };
        let step = compiled
            .step
            .run(&state.params, &batch.images, &batch.labels, forward)?;
        let value = f64::from(step.loss);
        if !value.is_finite() {
            return Err(self.diagnose(diagnosis::Pass::Training, value, batch, &step.outputs));
        }
        Ok(Pass {
            loss: value,
            outputs: step.outputs,
            gradients: step.gradients,
        })
    }

    fn eager_pass(&self, batch: &Batch) -> Result<Pass> {
        let outputs = self.model.forward_t(&batch.images, true)?;
        let loss = self.loss.loss(&outputs, &batch.labels)?;
        let outputs = outputs.detach();
        let value = scalar(&loss)?;
        if !value.is_finite() {
            drop(loss);
            return Err(self.diagnose(diagnosis::Pass::Training, value, batch, &outputs));
        }
        // The tape holds every activation; nothing after the backward pass needs it.
        Ok(Pass {
            gradients: loss.backward()?,
            loss: value,
            outputs,
        })
    }
}

/// The number in a loss.
pub(super) fn scalar(loss: &Tensor) -> Result<f64> {
    Error::require(
        loss.elem_count() == 1,
        "the loss",
        "a single number",
        &format!("a tensor of shape {:?}", loss.dims()),
    )?;
    let loss = loss.detach().flatten_all()?.to_dtype(DType::F64)?;
    Ok(loss.to_vec1::<f64>()?[0])
}
