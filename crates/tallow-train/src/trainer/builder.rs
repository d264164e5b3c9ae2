//! The settings of a training: [`TrainerBuilder`].

use std::any::type_name;
use std::path::PathBuf;

use candle_nn::ModuleT;
use serde_json::{Value, json};
use tallow_tensor::Params;
use tallow_tensor::memory;
use tallow_tensor::ops::CrossEntropyConfig;

use super::limits::Limits;
use super::{Compiled, Memory, Position, State, Trainer, UpdateSettings};
use crate::checkpoint::{self, Checkpointing};
use crate::distributed::{Collective, Ranks};
use crate::hooks::RunFolder;
use crate::metrics::Measure;
use crate::progress::ProgressDisplay;
use crate::{
    AdamW, Ema, EmaConfig, Error, GradientClip, Hook, Loss, LrSchedule, Optimizer, ReduceOnPlateau,
    Result,
};

/// The settings of a [`Trainer`]; what is not set has the default that its method names.
#[must_use]
pub struct TrainerBuilder<M> {
    model: M,
    params: Params,
    optimizer: Box<dyn Optimizer>,
    schedule: SchedulePlan,
    plateau: Option<ReduceOnPlateau>,
    updates: UpdateSettings,
    ema: Option<EmaConfig>,
    loss: Box<dyn Loss>,
    hooks: Vec<Box<dyn Hook>>,
    epochs: u64,
    seed: u64,
    top_k: Option<usize>,
    checkpoint: Option<PathBuf>,
    resume: Option<PathBuf>,
    run: Option<RunFolder>,
    limits: Limits,
    dev_run: bool,
    loss_name: &'static str,
    progress: ProgressDisplay,
    keep_freed_memory: bool,
    compile: Option<tallow_compile::Options>,
    ranks: Ranks,
    sync_batch_norm: bool,
}

/// A schedule, or how to make one once the number of steps is known.
pub(super) enum SchedulePlan {
    Fixed(LrSchedule),
    OverTraining(Box<dyn Fn(u64) -> LrSchedule>),
}

impl<M: ModuleT> TrainerBuilder<M> {
    pub(super) fn new(model: M, params: Params) -> Self {
        Self {
            model,
            params,
            optimizer: Box::new(AdamW::new(1e-3)),
            schedule: SchedulePlan::Fixed(LrSchedule::Constant),
            plateau: None,
            updates: UpdateSettings::default(),
            ema: None,
            loss: Box::new(CrossEntropyConfig::default()),
            hooks: Vec::new(),
            epochs: 1,
            seed: 42,
            top_k: None,
            checkpoint: None,
            resume: None,
            run: None,
            limits: Limits::default(),
            dev_run: false,
            loss_name: type_name::<CrossEntropyConfig>(),
            progress: ProgressDisplay::Auto,
            keep_freed_memory: true,
            compile: None,
            ranks: Ranks::default(),
            sync_batch_norm: false,
        }
    }

    /// Sets the optimizer; [`AdamW`] with a rate of 0.001 by default.
    pub fn optimizer(mut self, optimizer: impl Optimizer + 'static) -> Self {
        self.optimizer = Box::new(optimizer);
        self
    }

    /// Sets the learning-rate schedule, which scales the optimizer's rate; constant by default.
    pub fn schedule(mut self, schedule: LrSchedule) -> Self {
        self.schedule = SchedulePlan::Fixed(schedule);
        self
    }

    /// Sets a schedule that is made for the number of steps of the whole training, which is known when
    /// [`fit`](Trainer::fit) sees the training source: `.schedule_over_training(LrSchedule::one_cycle)`.
    pub fn schedule_over_training(
        mut self,
        schedule: impl Fn(u64) -> LrSchedule + 'static,
    ) -> Self {
        self.schedule = SchedulePlan::OverTraining(Box::new(schedule));
        self
    }

    /// Lowers the rate that the schedule gives when a metric gets no better; not by default.
    pub fn reduce_on_plateau(mut self, plateau: ReduceOnPlateau) -> Self {
        self.plateau = Some(plateau);
        self
    }

    /// Makes one step of `batches` batches, whose gradients are averaged over all samples: with a mean loss, and but for batch
    /// norm, the step of one batch as large as all of them. What is left at the end of an epoch makes a smaller step. Steps, and
    /// with them schedules, count updates. 1 by default.
    pub fn accumulate(mut self, batches: u64) -> Self {
        self.updates.accumulate = batches;
        self
    }

    /// Limits the gradients of each step, after the hooks have seen them; not by default.
    pub fn clip(mut self, clip: GradientClip) -> Self {
        self.updates.clip = Some(clip);
        self
    }

    /// Keeps a moving average of the weights, and evaluates with it; not by default.
    pub fn ema(mut self, config: EmaConfig) -> Self {
        self.ema = Some(config);
        self
    }

    /// Sets the loss: a [`CrossEntropyConfig`] or a function; cross entropy by default.
    pub fn loss<L: Loss + 'static>(mut self, loss: L) -> Self {
        self.loss_name = type_name::<L>();
        self.loss = Box::new(loss);
        self
    }

    /// Sets how many epochs the training has in all, those before a resume included; 1 by default.
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.epochs = epochs;
        self
    }

    /// Sets the seed of the randomness inside the model, such as dropout; 42 by default. Initial parameters and the
    /// order of samples have seeds of their own.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Measures top-k accuracy besides top-1; not by default.
    pub fn top_k(mut self, k: usize) -> Self {
        self.top_k = Some(k);
        self
    }

    /// Adds a hook. Hooks are called in the order they are added.
    pub fn hook(mut self, hook: Box<dyn Hook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Writes a checkpoint to `path` after every epoch and at the end. To choose other moments, add
    /// [`Checkpointing`] as a hook.
    pub fn checkpoint(mut self, path: impl Into<PathBuf>) -> Self {
        self.checkpoint = Some(path.into());
        self
    }

    /// Keeps settings, logs, curves and checkpoints of this training in one folder: a path for a new run, or a
    /// [`RunFolder`] with settings of its own. Its files are written after all other hooks were called.
    pub fn run_folder(mut self, run: impl Into<RunFolder>) -> Self {
        self.run = Some(run.into());
        self
    }

    /// Trains on the first `batches` batches of every epoch only. Schedules over the training see that length.
    pub fn limit_train_batches(mut self, batches: usize) -> Self {
        self.limits.train = Some(batches);
        self
    }

    /// Evaluates on the first `batches` batches only.
    pub fn limit_eval_batches(mut self, batches: usize) -> Self {
        self.limits.evaluation = Some(batches);
        self
    }

    /// Runs this many batches of the evaluation before the first step of the training, so that what is wrong with it is known
    /// before an epoch was spent. Nothing of it stays, and hooks don't see it.
    pub fn sanity_evaluation(mut self, batches: usize) -> Self {
        self.limits.rehearsal = Some(batches);
        self
    }

    /// Trains on the first `batches` batches of epoch 0 again and again, and evaluates on them too: a model that can't learn one
    /// batch by heart is wired wrongly.
    pub fn overfit_batches(mut self, batches: usize) -> Self {
        self.limits.overfit = Some(batches);
        self
    }

    /// Runs one batch of everything: one epoch of one step, an evaluation of one batch, every hook, and no checkpoint, log or run
    /// folder is written, to see in a moment whether a long training would start.
    pub fn fast_dev_run(mut self) -> Self {
        self.dev_run = true;
        self
    }

    /// Goes on from the checkpoint at `path` (of a folder, from the newest whole one in it), to the bit as if the training had
    /// never stopped: parameters, freezes, optimizer with its settings, schedule, accumulation, clipping, averaged weights, seed,
    /// epoch and batch are the checkpoint's. Only the number of epochs, the loss and the hooks are this builder's.
    pub fn resume(mut self, path: impl Into<PathBuf>) -> Self {
        self.resume = Some(path.into());
        self
    }

    /// Sets how progress is shown on standard error; [`ProgressDisplay::Auto`] by default.
    pub fn progress(mut self, progress: ProgressDisplay) -> Self {
        self.progress = progress;
        self
    }

    /// Runs training steps and evaluation as compiled plans; not by default. Parameters, optimizer, hooks, checkpoints and
    /// the order of everything stay the same, and so do results but for rounding.
    pub fn compile(mut self, options: tallow_compile::Options) -> Self {
        self.compile = Some(options);
        self
    }

    /// Makes this trainer one rank of several that train the same model, see [`distributed`](crate::distributed): parameters
    /// become those of rank 0, gradients are averaged over all ranks before hooks and clipping see them, metrics are those of all
    /// samples, and rank 0 alone writes checkpoints and logs, and shows progress. Every rank must have the same settings.
    ///
    /// Each rank needs its own part of the samples: give its [shard](Collective::shard) to the loaders. An epoch ends on all
    /// ranks with the first that has no more batches. A resume reads the checkpoint on every rank.
    pub fn distributed(mut self, collective: impl Collective + 'static) -> Self {
        self.ranks = Ranks::new(collective);
        self
    }

    /// Whether batch norm in training takes its statistics from the batches of all ranks, in compiled steps too; not by default.
    /// PyTorch's `SyncBatchNorm`. Two small messages a layer and pass.
    pub fn sync_batch_norm(mut self, sync: bool) -> Self {
        self.sync_batch_norm = sync;
        self
    }

    /// Whether the process keeps freed memory for the next step instead of giving it back to the system, see
    /// [`tallow_tensor::memory::keep_freed`]; yes by default. It holds for the rest of the process.
    pub fn keep_freed_memory(mut self, keep: bool) -> Self {
        self.keep_freed_memory = keep;
        self
    }

    /// Checks the settings, reads the checkpoint to resume from, and gives the trainer.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for settings that make no sense, and [`Error::File`] or [`Error::Checkpoint`] for a checkpoint
    /// that can't be resumed from. The parameters are unchanged then. [`Error::Rank`] for a rank with another model, other
    /// settings, or an error of its own.
    pub fn build(self) -> Result<Trainer<M>> {
        let ranks = self.ranks.clone();
        ranks.guard(self.build_here())
    }

    fn build_here(mut self) -> Result<Trainer<M>> {
        if self.dev_run {
            self.apply_dev_run();
        }
        self.check()?;
        let run_checkpoints = match &self.run {
            Some(run) => run.resume_from()?,
            None => None,
        };
        let settings = self.settings();
        let mut position = Position::start(self.seed, self.optimizer.lr());
        position.plateau = self.plateau;
        position.updates = self.updates;
        let mut state = State {
            ranks: self.ranks,
            lr: position.base_lr,
            params: self.params,
            optimizer: self.optimizer,
            position,
            memory: Memory::default(),
            resumed_from: None,
            settings,
            dev_run: self.dev_run,
            epochs: self.epochs,
            measure: Measure {
                top_k: self.top_k,
                ignored_label: self.loss.ignored_label(),
            },
            current_epoch: 0,
            current_batch: 0,
            within_epoch: false,
            loss: None,
            gradient_norm: None,
            ema: None,
            evaluation: None,
            stop: false,
        };
        // A run that has begun in its folder is further than the checkpoint that it may have begun from.
        if let Some(path) = run_checkpoints.as_ref().or(self.resume.as_ref()) {
            checkpoint::resume(&mut state, path)?;
        }
        state.agree()?;
        if let (Some(config), None) = (self.ema, &state.ema) {
            state.ema = Some(Ema::new(&state.params, config)?);
        }
        let mut hooks = self.hooks;
        hooks.extend(self.run.into_iter().flat_map(RunFolder::hooks));
        if let Some(path) = self.checkpoint {
            hooks.push(Box::new(Checkpointing::new(path).every_epochs(1)));
        }
        hooks.extend(self.progress.hook());
        if self.keep_freed_memory {
            memory::keep_freed();
        }
        Ok(Trainer {
            compiled: self.compile.map(Compiled::new).transpose()?,
            model: self.model,
            loss: self.loss,
            schedule: self.schedule,
            hooks,
            limits: self.limits,
            sync_batch_norm: self.sync_batch_norm,
            state,
            classes: None,
        })
    }

    fn apply_dev_run(&mut self) {
        self.epochs = 1;
        self.limits = Limits {
            train: Some(1),
            evaluation: Some(1),
            ..Limits::default()
        };
        self.run = None;
        self.checkpoint = None;
        self.resume = None;
    }

    /// What can be said about the settings, for [`HookContext::settings`](crate::HookContext::settings).
    fn settings(&self) -> Value {
        let optimizer = self.optimizer.state();
        let Limits {
            train,
            evaluation,
            rehearsal,
            overfit,
        } = self.limits;
        json!({
            "model": type_name::<M>(),
            "parameters": self.params.count(),
            "parameter_seed": self.params.seed(),
            "dtype": self.params.dtype().as_str(),
            "epochs": self.epochs,
            "seed": self.seed,
            "top_k": self.top_k,
            "optimizer": {"algorithm": optimizer.algorithm, "settings": optimizer.settings},
            "updates": self.updates,
            "ema": self.ema,
            "loss": self.loss_name,
            "compile": self.compile.as_ref().map(|options| format!("{options:?}")),
            "ranks": self.ranks.size(),
            "sync_batch_norm": self.sync_batch_norm,
            "resume": self.resume,
            "checkpoint": self.checkpoint,
            "limits": {
                "train_batches": train,
                "eval_batches": evaluation,
                "sanity_evaluation": rehearsal,
                "overfit_batches": overfit,
            },
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    fn check(&self) -> Result<()> {
        let limits = self.limits;
        let limits = [
            limits.train,
            limits.evaluation,
            limits.rehearsal,
            limits.overfit,
        ];
        let fits = !limits.contains(&Some(0));
        Error::require(fits, "a limit of batches", "at least 1", &0)?;
        Error::require(self.epochs > 0, "the number of epochs", "at least 1", &0)?;
        Error::require(
            self.top_k != Some(0),
            "k of top-k accuracy",
            "at least 1",
            &0,
        )?;
        let batches = self.updates.accumulate;
        let what = "the number of batches a step";
        Error::require(batches > 0, what, "at least 1", &batches)?;
        self.updates.clip.map_or(Ok(()), |clip| clip.check())?;
        self.ema.map_or(Ok(()), |ema| ema.check())?;
        self.plateau
            .as_ref()
            .map_or(Ok(()), ReduceOnPlateau::check)?;
        self.optimizer.check()?;
        match &self.schedule {
            SchedulePlan::Fixed(schedule) => schedule.check(),
            SchedulePlan::OverTraining(_) => Ok(()),
        }
    }
}

impl State {
    /// Sees that all ranks begin alike.
    fn agree(&self) -> Result<()> {
        let entries = self.params.iter();
        let layout: Vec<_> = entries
            .map(|entry| (entry.name, format!("{:?}", entry.var.shape()), entry.frozen))
            .collect();
        let layout = json!(layout).to_string();
        self.ranks.require_same(
            crc32fast::hash(layout.as_bytes()),
            "has a model with other parameters than rank 0; build the same model on every rank",
        )?;
        let mut settings = self.settings.clone();
        if let Some(settings) = settings.as_object_mut() {
            // Paths may differ between machines.
            settings.retain(|name, _| name != "resume" && name != "checkpoint");
        }
        let position = serde_json::to_value(&self.position).map_err(Error::hook)?;
        let start = json!([settings, position]).to_string();
        self.ranks.require_same(
            crc32fast::hash(start.as_bytes()),
            "begins with other settings, or from another checkpoint, than rank 0; give every rank the same",
        )?;
        if self.resumed_from.is_some() {
            return self.ranks.require_same_parameters(&self.params);
        }
        self.ranks.share_parameters(&self.params)
    }
}
