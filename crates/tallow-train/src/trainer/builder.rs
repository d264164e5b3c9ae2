//! The settings of a training: [`TrainerBuilder`].

use std::path::PathBuf;

use candle_nn::ModuleT;
use tallow_tensor::Params;
use tallow_tensor::memory;
use tallow_tensor::ops::CrossEntropyConfig;

use super::{Compiled, Position, State, Trainer, UpdateSettings};
use crate::checkpoint::{self, Checkpointing};
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
    progress: ProgressDisplay,
    keep_freed_memory: bool,
    compile: Option<tallow_compile::Options>,
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
            progress: ProgressDisplay::Auto,
            keep_freed_memory: true,
            compile: None,
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
    pub fn loss(mut self, loss: impl Loss + 'static) -> Self {
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

    /// Goes on from the checkpoint at `path`, to the bit as if the training had never stopped: parameters, freezes,
    /// optimizer with its settings, schedule, accumulation, clipping, averaged weights, seed, epoch and batch are the checkpoint's.
    /// Only the number of epochs, the loss and the hooks are this builder's.
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
    /// that can't be resumed from. The parameters are unchanged then.
    pub fn build(self) -> Result<Trainer<M>> {
        self.check()?;
        let mut position = Position::start(self.seed, self.optimizer.lr());
        position.plateau = self.plateau;
        position.updates = self.updates;
        let mut state = State {
            lr: position.base_lr,
            params: self.params,
            optimizer: self.optimizer,
            position,
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
        if let Some(path) = &self.resume {
            checkpoint::resume(&mut state, path)?;
        }
        if let (Some(config), None) = (self.ema, &state.ema) {
            state.ema = Some(Ema::new(&state.params, config)?);
        }
        let mut hooks = self.hooks;
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
            state,
            classes: None,
        })
    }

    fn check(&self) -> Result<()> {
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
