//! One training step: forward, loss and backward of a group of batches, update.

use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor};
use candle_nn::ModuleT;
use tallow_data::{Batch, Batches};
use tallow_tensor::rng;
use tracing::debug_span;

use super::accumulate::GradientSum;
use super::{Trainer, diagnosis};
use crate::{Error, Result};

impl<M: ModuleT> Trainer<M> {
    /// One step on `first` and, with accumulation, on as many of `rest` as make up a group.
    pub(super) fn step(&mut self, first: &Batch, rest: &mut Batches<'_>) -> Result<()> {
        let step = self.state.position.step;
        self.state.lr = self.state.position.scheduled_lr(step);
        self.notify(|hook, context| hook.on_step_begin(context))?;
        self.state.optimizer.set_lr(self.state.lr);
        self.state.position.last_lr = Some(self.state.lr);

        let count = self.state.position.updates.accumulate;
        let (seen, mut gradients) = self.group(first, rest, count, step)?;
        let joint = self.state.join_step(&seen)?;
        self.state.average(&mut gradients, &joint)?;
        self.state.loss = Some(joint.loss);
        self.notify(|hook, context| hook.on_gradients(context, &mut gradients))?;
        self.state.update(&mut gradients)?;
        drop(gradients);

        let span = debug_span!(target: "tallow", "metrics").entered();
        let state = &mut self.state;
        state.position.tally.merge(&joint.tally);
        state.position.step += 1;
        state.position.batch += seen.len() as u64;
        state.current_batch = state.position.batch;
        drop(span);
        self.notify(|hook, context| hook.on_step_end(context))
    }

    /// The passes of one step over at most `count` batches, and the mean of their gradients. Every pass of every rank draws from a
    /// key of its own.
    pub(super) fn group(
        &mut self,
        first: &Batch,
        rest: &mut dyn Iterator<Item = tallow_data::Result<Batch>>,
        count: u64,
        step: u64,
    ) -> Result<(Vec<Seen>, GradStore)> {
        let count = count.max(1);
        let seed = self.state.position.seed;
        let (rank, world) = (
            self.state.ranks.rank() as u64,
            self.state.ranks.size() as u64,
        );
        let draws = |index: u64| {
            let pass = step.wrapping_mul(count).wrapping_add(index);
            pass.wrapping_mul(world).wrapping_add(rank)
        };
        rng::begin_step(seed, draws(0));
        let (seen, mut gradients) = self.pass(first)?;
        let mut all = vec![seen];
        if count == 1 {
            return Ok((all, gradients));
        }
        let parameters = self.state.params.trainable();
        let mut sum = GradientSum::new(&parameters);
        sum.add(&mut gradients, first.len())?;
        for (index, batch) in (1..count).zip(rest) {
            let batch = batch?;
            rng::begin_step(seed, draws(index));
            let (seen, next) = self.pass(&batch)?;
            all.push(seen);
            gradients = next;
            sum.add(&mut gradients, batch.len())?;
        }
        sum.mean(&mut gradients)?;
        Ok((all, gradients))
    }
}

/// What is left of a batch after its pass.
pub(super) struct Seen {
    pub(super) loss: f64,
    pub(super) outputs: Tensor,
    pub(super) labels: Tensor,
}

/// The mean over the samples of all batches.
pub(super) fn mean_loss(seen: &[Seen]) -> f64 {
    if let [one] = seen {
        return one.loss;
    }
    let samples = |batch: &Seen| batch.samples() as f64;
    let sum: f64 = seen.iter().map(|batch| batch.loss * samples(batch)).sum();
    sum / seen.iter().map(samples).sum::<f64>()
}

impl super::State {
    /// Clips, updates, and follows with the averaged weights.
    pub(super) fn update(&mut self, gradients: &mut GradStore) -> Result<()> {
        let _span = debug_span!(target: "tallow", "optimizer").entered();
        let parameters = self.params.trainable();
        self.gradient_norm = None;
        if let Some(clip) = self.position.updates.clip {
            let _span = debug_span!(target: "tallow", "clip").entered();
            self.gradient_norm = Some(clip.apply(&parameters, gradients)?);
        }
        let updated = self.optimizer.step(&parameters, gradients)?;
        if updated == 0 {
            return Err(Error::NoGradient {
                step: self.position.step,
                parameters: parameters.len(),
            });
        }
        let _span = self
            .ema
            .is_some()
            .then(|| debug_span!(target: "tallow", "ema").entered());
        match &mut self.ema {
            Some(ema) => ema.update(&self.params),
            None => Ok(()),
        }
    }
}

impl<M: ModuleT> Trainer<M> {
    /// Forward, loss and backward: compiled, or on candle's tape.
    fn pass(&mut self, batch: &Batch) -> Result<(Seen, GradStore)> {
        let targets = self.targets(batch)?;
        let _shared = self.share_statistics();
        let Self {
            model,
            loss,
            compiled: Some(compiled),
            state,
            ..
        } = self
        else {
            return self.eager_pass(batch, &targets);
        };
        let forward = |images: &Tensor, labels: &Tensor| {
            let outputs = model.forward_t(images, true)?;
            Ok((
                loss.loss(&outputs, labels)
                    .map_err(candle_core::Error::wrap)?,
                outputs,
            ))
        };
        let _span = debug_span!(target: "tallow", "compiled_step").entered();
        let step = compiled
            .step
            .run(&state.params, &batch.images, &targets, forward)?;
        let value = f64::from(step.loss);
        if !value.is_finite() {
            return Err(self.diagnose(diagnosis::Pass::Training, value, batch, &step.outputs));
        }
        Ok((Seen::new(value, step.outputs, batch), step.gradients))
    }

    fn eager_pass(&self, batch: &Batch, targets: &Tensor) -> Result<(Seen, GradStore)> {
        let span = debug_span!(target: "tallow", "forward").entered();
        let outputs = self.model.forward_t(&batch.images, true)?;
        drop(span);
        let span = debug_span!(target: "tallow", "loss").entered();
        let loss = self.loss.loss(&outputs, targets)?;
        drop(span);
        let outputs = outputs.detach();
        let value = scalar(&loss)?;
        if !value.is_finite() {
            drop(loss);
            return Err(self.diagnose(diagnosis::Pass::Training, value, batch, &outputs));
        }
        // The tape holds every activation; nothing after the backward pass needs it.
        let _span = debug_span!(target: "tallow", "backward").entered();
        let gradients = loss.backward()?;
        drop(loss);
        Ok((Seen::new(value, outputs, batch), gradients))
    }
}

impl Seen {
    fn new(loss: f64, outputs: Tensor, batch: &Batch) -> Self {
        Self {
            loss,
            outputs,
            labels: batch.labels.clone(),
        }
    }

    pub(super) fn samples(&self) -> usize {
        self.labels.elem_count()
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
