//! The loop over epochs: [`Trainer::fit`].

use std::time::{Duration, Instant};

use candle_nn::ModuleT;
use tallow_data::{BatchSource, Batches};
use tracing::debug_span;

use super::builder::SchedulePlan;
use super::{State, Trainer};
use crate::distributed::InStep;
use crate::metrics::Tally;
use crate::{EpochRecord, Error, History, Result};

impl<M: ModuleT> Trainer<M> {
    /// Trains until all epochs are done or a hook requests a stop, evaluates after every epoch if there is an
    /// `evaluation` source, and gives the history.
    ///
    /// # Errors
    ///
    /// Anything that goes wrong in data, model, hooks or checkpoints. Parameters stay as the last good step left
    /// them, and checkpoints written before stay whole. With several [ranks](crate::distributed), an error on one of them ends the
    /// training on all, on the others as [`Error::Rank`].
    pub fn fit(
        &mut self,
        train: &dyn BatchSource,
        evaluation: Option<&dyn BatchSource>,
    ) -> Result<History> {
        let ranks = self.state.ranks.clone();
        ranks.guard(self.fit_here(train, evaluation))
    }

    fn fit_here(
        &mut self,
        train: &dyn BatchSource,
        evaluation: Option<&dyn BatchSource>,
    ) -> Result<History> {
        let limits = self.limits;
        let evaluation = limits.evaluated(train, evaluation);
        let train = &limits.training(train);
        self.plan(train)?;
        self.state.stop = false;
        self.state.loss = None;
        if let Some(source) = evaluation
            && limits.rehearses()
            && self.state.position.step == 0
        {
            self.rehearse_evaluation(source)?;
        }
        self.notify(|hook, context| hook.on_fit_begin(context))?;
        while self.state.position.epoch < self.state.epochs && !self.stops()? {
            self.epoch(train, evaluation)?;
        }
        self.notify(|hook, context| hook.on_fit_end(context))?;
        Ok(self.state.position.history.clone())
    }

    /// Settles the length of an epoch and the schedule.
    fn plan(&mut self, train: &dyn BatchSource) -> Result<()> {
        let found = train.len_hint().map(|batches| batches as u64);
        let found = self.state.ranks.least(found)?;
        let position = &mut self.state.position;
        if let (Some(expected), Some(found)) = (position.batches, found)
            && position.batch > 0
            && expected != found
        {
            return Err(other_source(&expected.to_string(), found));
        }
        if position.schedule.is_none() {
            let schedule = match &self.schedule {
                SchedulePlan::Fixed(schedule) => schedule.clone(),
                SchedulePlan::OverTraining(make) => {
                    let batches = found.ok_or_else(no_length)?;
                    let steps = batches.div_ceil(position.updates.accumulate.max(1));
                    make(steps.saturating_mul(self.state.epochs).max(1))
                }
            };
            schedule.check()?;
            position.schedule = Some(schedule);
        }
        position.batches = found;
        Ok(())
    }

    /// One epoch with its evaluation, from the batch at which the training stands.
    fn epoch(
        &mut self,
        train: &dyn BatchSource,
        evaluation: Option<&dyn BatchSource>,
    ) -> Result<()> {
        let mut batches = self.begin_epoch(train)?;
        self.notify(|hook, context| hook.on_epoch_begin(context))?;
        let start = Instant::now();
        let samples_before = self.samples();
        while !self.stops()? {
            let span = debug_span!(target: "tallow", "data").entered();
            let next = batches.next();
            drop(span);
            let Some(batch) = next else { break };
            let step = self.state.position.step;
            let _span = debug_span!(target: "tallow", "step", step).entered();
            self.step(&batch?, &mut batches)?;
        }
        let unfinished = self.state.stop && batches.next().is_some();
        drop(batches);
        if unfinished {
            return Ok(());
        }
        let trained = Trained {
            duration: start.elapsed(),
            samples: self.samples() - samples_before,
        };
        self.state
            .ranks
            .require_same_parameters(&self.state.params)?;
        if let Some(source) = evaluation {
            self.evaluate_here(source)?;
        }
        self.state.finish_epoch(&trained, evaluation.is_some())?;
        self.notify(|hook, context| hook.on_epoch_end(context))
    }

    /// Opens the epoch, behind the batches that are done.
    fn begin_epoch<'a>(&mut self, train: &'a dyn BatchSource) -> Result<Batches<'a>> {
        let state = &mut self.state;
        let position = &mut state.position;
        if position.batch == 0 {
            position.tally = Tally::default();
        }
        state.current_epoch = position.epoch;
        state.current_batch = position.batch;
        state.within_epoch = true;
        let batches = train.epoch_from(position.epoch, position.batch)?;
        Ok(InStep::of(batches, &state.ranks))
    }

    fn samples(&self) -> u64 {
        self.state.position.tally.samples()
    }
}

/// What the training part of an epoch took.
struct Trained {
    duration: Duration,
    samples: u64,
}

impl State {
    /// Adds the epoch to the history and moves on to the next one.
    fn finish_epoch(&mut self, trained: &Trained, evaluated: bool) -> Result<()> {
        let position = &mut self.position;
        let metrics = position.tally.metrics(self.measure);
        let train = metrics.ok_or(Error::NoBatches {
            role: "training",
            epoch: position.epoch,
        })?;
        let evaluation = self.evaluation.clone().filter(|_| evaluated);
        let lr = position.unreduced_lr(position.step.saturating_sub(1));
        if let Some(plateau) = &mut position.plateau {
            plateau.observe_metrics(lr, evaluation.as_ref().unwrap_or(&train));
        }
        let seconds = trained.duration.as_secs_f64();
        position.history.epochs.push(EpochRecord {
            epoch: position.epoch,
            steps: position.step,
            lr: self.lr,
            train,
            evaluation,
            recorded: std::mem::take(&mut position.recorded),
            seconds,
            samples_per_second: trained.samples as f64 / seconds.max(1e-9),
        });
        position.epoch += 1;
        position.batch = 0;
        self.within_epoch = false;
        Ok(())
    }
}

fn other_source(expected: &str, found: u64) -> Error {
    Error::Setting {
        what: "the training source, to resume in the middle of an epoch,",
        expected: format!("the one the checkpoint was made with, of {expected} batches an epoch"),
        found: format!("{found} batches"),
    }
}

fn no_length() -> Error {
    Error::Setting {
        what: "the training source, for a schedule over the whole training,",
        expected:
            "one that knows its number of batches; otherwise set a schedule of a fixed length"
                .into(),
        found: "a source without a length".into(),
    }
}
