//! Evaluation in inference mode: [`Trainer::evaluate`].

use candle_core::Tensor;
use candle_nn::ModuleT;
use tallow_data::{Batch, BatchSource};
use tallow_tensor::{no_grad, rng};

use super::Trainer;
use super::diagnosis::Pass;
use super::step::scalar;
use crate::metrics::{Metrics, Tally};
use crate::{Error, Result};

impl<M: ModuleT> Trainer<M> {
    /// Measures the model on epoch 0 of `source`.
    ///
    /// The model runs with `train = false`: no dropout, batch norm with its running statistics, and with the averaged weights where
    /// the trainer [keeps them](crate::TrainerBuilder::ema). Nothing of the
    /// training changes, and operations of [`tallow_tensor::ops`] keep no tape.
    ///
    /// With several [ranks](crate::distributed), every rank calls this with its part of the samples, and gets the metrics of all.
    ///
    /// # Errors
    ///
    /// Anything that goes wrong in data, model or hooks; [`Error::NonFinite`] for a loss that is not finite.
    pub fn evaluate(&mut self, source: &dyn BatchSource) -> Result<Metrics> {
        let ranks = self.state.ranks.clone();
        ranks.guard(self.evaluate_here(source))
    }

    pub(super) fn evaluate_here(&mut self, source: &dyn BatchSource) -> Result<Metrics> {
        let _span = tracing::debug_span!(target: "tallow", "evaluate").entered();
        self.notify(|hook, context| hook.on_evaluate_begin(context))?;
        let draws = rng::state();
        let averaged = self.evaluates_average();
        if averaged {
            self.swap_ema()?;
        }
        let tally = self.tally(&self.limits.evaluation(source), Notify::Hooks);
        if averaged {
            self.swap_ema()?;
        }
        rng::restore(draws);
        let tally = self.state.join_tally(&tally?)?;
        let metrics = tally.metrics(self.state.measure);
        let metrics = metrics.ok_or(Error::NoBatches {
            role: "evaluation",
            epoch: 0,
        })?;
        self.state.evaluation = Some(metrics.clone());
        self.notify(|hook, context| hook.on_evaluate_end(context))?;
        Ok(metrics)
    }

    fn evaluates_average(&self) -> bool {
        let ema = self.state.ema.as_ref();
        ema.is_some_and(|ema| ema.config().evaluate && ema.updates() > 0)
    }

    /// Runs a few batches of an evaluation before the training begins, so that what is wrong with it comes out now and not
    /// after the first epoch. Hooks don't see it, and nothing of it stays.
    pub(super) fn rehearse_evaluation(&mut self, source: &dyn BatchSource) -> Result<()> {
        let draws = rng::state();
        let tally = self.tally(&self.limits.rehearsal(source), Notify::Nobody);
        rng::restore(draws);
        tally.map(|_| ())
    }

    fn tally(&mut self, source: &dyn BatchSource, notify: Notify) -> Result<Tally> {
        let _guard = no_grad::enter();
        let mut tally = Tally::default();
        for (index, batch) in source.epoch(0)?.enumerate() {
            let batch = batch?;
            let outputs = self.measure(index, &batch, &mut tally)?;
            if notify == Notify::Hooks {
                self.notify(|hook, context| {
                    hook.on_evaluate_batch(context, &outputs, &batch.labels)
                })?;
            }
        }
        Ok(tally)
    }

    /// Adds a batch to the tally and gives the model's outputs.
    fn measure(&mut self, index: usize, batch: &Batch, tally: &mut Tally) -> Result<Tensor> {
        let targets = self.targets(batch)?;
        let model = &self.model;
        let forward = |images: &Tensor| model.forward_t(images, false);
        let outputs = match &mut self.compiled {
            Some(compiled) => compiled.inference.run(&batch.images, forward)?,
            None => forward(&batch.images)?.detach(),
        };
        let loss = scalar(&self.loss.loss(&outputs, &targets)?)?;
        if !loss.is_finite() {
            let pass = Pass::Evaluation { batch: index };
            return Err(self.diagnose(pass, loss, batch, &outputs));
        }
        tally.add(loss, &outputs, &batch.labels, self.state.measure)?;
        Ok(outputs)
    }
}

/// Who is told of the batches of an evaluation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notify {
    Hooks,
    Nobody,
}
