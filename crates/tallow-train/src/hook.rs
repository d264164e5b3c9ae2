//! Code that runs at fixed points of a training: the [`Hook`] trait, and [`HookContext`], what a hook sees and may change.
//!
//! The trainer calls the hooks; [`Checkpointing`](crate::Checkpointing) and the progress display are hooks themselves.

use std::path::Path;

use candle_core::Tensor;
use candle_core::backprop::GradStore;
use indexmap::IndexMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tallow_tensor::Params;

use crate::metrics::Metrics;
use crate::trainer::State;
use crate::{Ema, Error, History, Optimizer, Result, checkpoint};

/// Code of your own at the points of a training. Every method does nothing unless you write it.
///
/// ```text
/// on_fit_begin
///   on_epoch_begin
///     on_step_begin      the learning rate is set, and can be changed
///     on_gradients       after the backward pass, before the update
///     on_step_end        loss and running metrics include this step
///     ...
///     on_evaluate_begin
///     on_evaluate_batch  once a batch, with the model's outputs
///     on_evaluate_end    evaluation() holds its metrics
///   on_epoch_end         history() ends with this epoch
///   ...
/// on_fit_end
/// ```
///
/// With several [ranks](crate::distributed), hooks are called on every rank, those that [say so](Self::first_rank_only) on rank 0
/// alone. A stop that is requested on any rank stops all of them.
///
/// Hooks are called in the order they were added. An error ends the training and comes out of
/// [`fit`](crate::Trainer::fit); begin and end pair up except then, and except that an epoch cut short by
/// [`request_stop`](HookContext::request_stop) has no `on_epoch_end`.
///
/// ```
/// use tallow_train::{Hook, HookContext, Result};
///
/// /// Stops as soon as the evaluation accuracy is good enough.
/// struct StopAt { accuracy: f64 }
///
/// impl Hook for StopAt {
///     fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
///         if context.evaluation().is_some_and(|metrics| metrics.accuracy >= self.accuracy) {
///             context.request_stop();
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait Hook {
    /// Whether the hook runs on rank 0 alone where there are several [ranks](crate::distributed): right for what writes files or talks
    /// to people, wrong for what changes parameters or gradients, which must be the same on every rank.
    fn first_rank_only(&self) -> bool {
        false
    }

    /// Before the first epoch of this call of `fit`.
    ///
    /// # Errors
    ///
    /// Any error ends the training; so in every method.
    fn on_fit_begin(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        Ok(())
    }

    /// After the last epoch, also when a stop was requested.
    ///
    /// # Errors
    ///
    /// Comes out of `fit`.
    fn on_fit_end(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        Ok(())
    }

    /// Before the first batch of an epoch; after a resume in the middle of one, before its next batch.
    ///
    /// # Errors
    ///
    /// Ends the training.
    fn on_epoch_begin(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        Ok(())
    }

    /// After an epoch and its evaluation.
    ///
    /// # Errors
    ///
    /// Ends the training.
    fn on_epoch_end(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        Ok(())
    }

    /// Before a step; the place for [`set_lr`](HookContext::set_lr).
    ///
    /// # Errors
    ///
    /// Ends the training.
    fn on_step_begin(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        Ok(())
    }

    /// Between the backward pass and the update; `gradients` may be read and replaced, for clipping say.
    ///
    /// # Errors
    ///
    /// Ends the training before the update.
    fn on_gradients(
        &mut self,
        _context: &mut HookContext<'_>,
        _gradients: &mut GradStore,
    ) -> Result<()> {
        Ok(())
    }

    /// After a step and its update.
    ///
    /// # Errors
    ///
    /// Ends the training.
    fn on_step_end(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        Ok(())
    }

    /// Before an evaluation, within `fit` or called by itself.
    ///
    /// # Errors
    ///
    /// Ends the evaluation.
    fn on_evaluate_begin(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        Ok(())
    }

    /// After each batch of an evaluation: the model's `outputs`, `[N, classes]` for a classifier, and the `labels` `[N]`.
    ///
    /// # Errors
    ///
    /// Ends the evaluation.
    fn on_evaluate_batch(
        &mut self,
        _context: &mut HookContext<'_>,
        _outputs: &Tensor,
        _labels: &Tensor,
    ) -> Result<()> {
        Ok(())
    }

    /// After an evaluation.
    ///
    /// # Errors
    ///
    /// Ends the evaluation.
    fn on_evaluate_end(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        Ok(())
    }
}

/// Where the training stands, for hooks to read and to steer.
pub struct HookContext<'a> {
    state: &'a mut State,
}

impl<'a> HookContext<'a> {
    pub(crate) fn new(state: &'a mut State) -> Self {
        Self { state }
    }

    /// The current epoch, counted from 0; in `on_epoch_end` the one just finished.
    pub fn epoch(&self) -> u64 {
        self.state.current_epoch
    }

    /// How many epochs the training has in all.
    pub fn epochs(&self) -> u64 {
        self.state.epochs
    }

    /// Steps done since the training began, over all epochs and resumes.
    pub fn step(&self) -> u64 {
        self.state.position.step
    }

    /// Batches of the current epoch that are done.
    pub fn batch(&self) -> u64 {
        self.state.current_batch
    }

    /// Batches in an epoch, if the training source knows.
    pub fn batches(&self) -> Option<u64> {
        self.state.position.batches
    }

    /// The learning rate of the current step.
    pub fn lr(&self) -> f64 {
        self.state.lr
    }

    /// Sets the learning rate of the coming step; the schedule sets the one after it again. In `on_step_begin`.
    pub fn set_lr(&mut self, lr: f64) {
        self.state.lr = lr;
    }

    /// The rate that the schedule scales.
    pub fn base_lr(&self) -> f64 {
        self.state.position.base_lr
    }

    /// Sets the rate that the schedule scales, for all steps to come.
    pub fn set_base_lr(&mut self, lr: f64) {
        self.state.position.base_lr = lr;
    }

    /// Ends the training after the current step, or after the current epoch in `on_epoch_end`.
    pub fn request_stop(&mut self) {
        self.state.stop = true;
    }

    /// Whether a stop was requested.
    pub fn stop_requested(&self) -> bool {
        self.state.stop
    }

    /// The loss of the last step of this call of `fit`; in `on_gradients` that of the step being done.
    pub fn loss(&self) -> Option<f64> {
        self.state.loss
    }

    /// The global norm of the last step's gradients before they were clipped, if the trainer [clips](crate::TrainerBuilder::clip).
    pub fn gradient_norm(&self) -> Option<f64> {
        self.state.gradient_norm
    }

    /// The averaged weights, if the trainer [keeps them](crate::TrainerBuilder::ema).
    pub fn ema(&self) -> Option<&Ema> {
        self.state.ema.as_ref()
    }

    /// Means over the training samples of the current epoch so far; none before its first step.
    pub fn running(&self) -> Option<Metrics> {
        self.state.position.tally.metrics(self.state.measure)
    }

    /// The metrics of the last evaluation.
    pub fn evaluation(&self) -> Option<&Metrics> {
        self.state.evaluation.as_ref()
    }

    /// The finished epochs.
    pub fn history(&self) -> &History {
        &self.state.position.history
    }

    /// Writes a number into the current epoch's [record](crate::EpochRecord::recorded); from `on_epoch_end` on, into
    /// the record of the epoch just finished. A later value of the same name replaces an earlier one.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for NaN and infinity, which JSON can't hold.
    pub fn record(&mut self, name: &str, value: f64) -> Result<()> {
        let what = "a recorded value";
        Error::require(
            value.is_finite(),
            what,
            "finite",
            &format!("{name} = {value}"),
        )?;
        let position = &mut self.state.position;
        let finished = position.history.epochs.last_mut();
        let record = match finished {
            Some(record) if !self.state.within_epoch => &mut record.recorded,
            _ => &mut position.recorded,
        };
        record.insert(name.to_string(), value);
        Ok(())
    }

    /// Keeps a value under `key` in this training and its checkpoints, for [`recall`](Self::recall) after a resume. A later
    /// value of the same key replaces an earlier one. Begin keys with the name of your hook.
    ///
    /// # Errors
    ///
    /// [`Error::Hook`] for a value that JSON can't hold.
    ///
    /// ```
    /// # use tallow_train::{Hook, HookContext, Result};
    /// /// Counts the times that `fit` was called, over all resumes.
    /// struct Sessions;
    ///
    /// impl Hook for Sessions {
    ///     fn on_fit_begin(&mut self, context: &mut HookContext<'_>) -> Result<()> {
    ///         let before: u64 = context.recall("sessions")?.unwrap_or(0);
    ///         context.remember("sessions", &(before + 1))
    ///     }
    /// }
    /// ```
    pub fn remember(&mut self, key: &str, value: &impl Serialize) -> Result<()> {
        let value = serde_json::to_value(value).map_err(Error::hook)?;
        self.state.memory.values.insert(key.to_string(), value);
        Ok(())
    }

    /// The value kept under `key`, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Hook`] if it is of another type.
    pub fn recall<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let value = self.state.memory.values.get(key).cloned();
        let value = value.map(serde_json::from_value).transpose();
        value.map_err(|error| {
            Error::hook(format!(
                "what the checkpoint keeps under `{key}` is not what the hook asks for ({error}); give hooks keys of their own"
            ))
        })
    }

    /// Keeps copies of tensors under `key`, a name without a slash, as [`remember`](Self::remember) keeps values. They
    /// replace those kept before; an empty map forgets them.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a key with a slash; [`Error::Tensor`] if a copy fails, and then nothing has changed.
    pub fn remember_tensors(
        &mut self,
        key: &str,
        tensors: &IndexMap<String, Tensor>,
    ) -> Result<()> {
        let what = "the key of tensors to remember";
        Error::require(!key.contains('/'), what, "a name without `/`", &key)?;
        let copies = tensors.iter().map(|(name, tensor)| {
            Ok((format!("{key}/{name}"), tensor.force_contiguous()?.detach()))
        });
        let copies: Vec<_> = copies.collect::<Result<_>>()?;
        let kept = &mut self.state.memory.tensors;
        kept.retain(|name, _| tensor_name(key, name).is_none());
        kept.extend(copies);
        Ok(())
    }

    /// The tensors kept under `key` by name; empty if there are none.
    pub fn recall_tensors(&self, key: &str) -> IndexMap<String, Tensor> {
        let kept = self.state.memory.tensors.iter();
        kept.filter_map(|(name, tensor)| {
            Some((tensor_name(key, name)?.to_string(), tensor.clone()))
        })
        .collect()
    }

    /// The settings of the training as JSON, for a report: what the builder was told, and the schedule once it is known.
    pub fn settings(&self) -> Value {
        let mut settings = self.state.settings.clone();
        if let (Some(fields), Some(schedule)) =
            (settings.as_object_mut(), &self.state.position.schedule)
        {
            let schedule = serde_json::to_value(schedule).unwrap_or(Value::Null);
            fields.insert("schedule".to_string(), schedule);
        }
        settings
    }

    /// The number of this [rank](crate::distributed), from 0.
    pub fn rank(&self) -> usize {
        self.state.ranks.rank()
    }

    /// How many [ranks](crate::distributed) train this model; 1 if nothing else was said.
    pub fn world_size(&self) -> usize {
        self.state.ranks.size()
    }

    /// Replaces `values` by their sums over all [ranks](crate::distributed), for numbers of a rank's own part of the data. Every rank
    /// must call it, with as many values: not in a hook for the [first rank only](Hook::first_rank_only).
    ///
    /// # Errors
    ///
    /// [`Error::Rank`] names the rank that failed.
    pub fn sum_over_ranks(&self, values: &mut [f64]) -> Result<()> {
        self.state.ranks.sum(values)
    }

    /// Whether this is a [fast dev run](crate::TrainerBuilder::fast_dev_run), which should leave no files.
    pub fn is_dev_run(&self) -> bool {
        self.state.dev_run
    }

    /// Whether an epoch is under way: false in an evaluation that is called by itself.
    pub(crate) fn within_epoch(&self) -> bool {
        self.state.within_epoch
    }

    /// The model's parameters, to read, freeze or unfreeze.
    pub fn params(&self) -> &Params {
        &self.state.params
    }

    /// The optimizer and, through [`state`](Optimizer::state), what it remembers.
    pub fn optimizer(&self) -> &dyn Optimizer {
        self.state.optimizer.as_ref()
    }

    /// Writes all that is needed to go on from here, in one safetensors file. What stood at `path` before stays whole
    /// until the new file is. In a [fast dev run](crate::TrainerBuilder::fast_dev_run), and on other
    /// [ranks](crate::distributed) than 0, nothing is written.
    ///
    /// # Errors
    ///
    /// [`Error::File`] names the file; the former one is untouched then.
    pub fn save_checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        if self.state.dev_run || !self.state.ranks.is_first() {
            return Ok(());
        }
        checkpoint::save(self.state, path.as_ref())
    }
}

/// The name of a kept tensor without its key, if it has this one.
fn tensor_name<'a>(key: &str, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(key)?.strip_prefix('/')
}
