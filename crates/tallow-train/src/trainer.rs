//! The training loop: [`Trainer`], its [builder](TrainerBuilder), and the state that hooks see and checkpoints hold.
//!
//! In order: settings (`builder`), where a training stands (`state`), the loop over epochs (`fit`) and how much of the data
//! it sees (`limits`), one step (`step`), of batches with labels or mixed ones (`targets`), one or several (`accumulate`),
//! evaluation (`evaluate`), what several ranks do together (`joint`), the search for a learning rate (`find_lr`), and what to say when a loss is not finite
//! (`diagnosis`). The model is anything with
//! [`ModuleT`]; where batches come from is the business of `tallow_data`.

mod accumulate;
mod builder;
mod diagnosis;
mod evaluate;
mod find_lr;
mod fit;
mod joint;
mod limits;
mod state;
mod step;
mod targets;

use std::path::Path;

use candle_nn::ModuleT;
use tallow_compile::{InferenceCompiler, StepCompiler};
use tallow_tensor::Params;

use crate::{Ema, History, Hook, HookContext, Loss, Optimizer, Result, checkpoint};
use builder::SchedulePlan;
use limits::Limits;

pub use builder::TrainerBuilder;
pub(crate) use state::{Memory, Position, State, UpdateSettings};

/// Trains a model: epochs of steps, an evaluation after each, hooks at fixed points, checkpoints to resume from.
///
/// A step is the forward pass, the loss, the backward pass and the update. Before it, the thread's random streams are
/// set to (seed, step), so dropout draws the same in every run and after every resume: the same seed gives the same
/// bits, for any number of threads.
///
/// The trainer goes on from where it stands: a second call of [`fit`](Trainer::fit) does the epochs that are left.
pub struct Trainer<M> {
    model: M,
    loss: Box<dyn Loss>,
    schedule: SchedulePlan,
    hooks: Vec<Box<dyn Hook>>,
    limits: Limits,
    state: State,
    compiled: Option<Compiled>,
    /// Whether batch norm takes its statistics from all ranks.
    sync_batch_norm: bool,
    /// How many classes the model tells apart, once that was asked.
    classes: Option<usize>,
}

/// The plans of a trainer that compiles.
struct Compiled {
    step: StepCompiler,
    inference: InferenceCompiler,
}

impl Compiled {
    fn new(options: tallow_compile::Options) -> Result<Self> {
        Ok(Self {
            inference: InferenceCompiler::new(options.clone())?,
            step: StepCompiler::new(options)?,
        })
    }
}

impl<M: ModuleT> Trainer<M> {
    /// The settings of a training of `model`, whose parameters are `params`.
    pub fn builder(model: M, params: Params) -> TrainerBuilder<M> {
        TrainerBuilder::new(model, params)
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// Gives the model back; its parameters stay what training made them.
    pub fn into_model(self) -> M {
        self.model
    }

    /// The model's parameters.
    pub fn params(&self) -> &Params {
        &self.state.params
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &dyn Optimizer {
        self.state.optimizer.as_ref()
    }

    /// The finished epochs, those before a resume included.
    pub fn history(&self) -> &History {
        &self.state.position.history
    }

    /// Steps done since the training began, over all epochs and resumes.
    pub fn steps(&self) -> u64 {
        self.state.position.step
    }

    /// The averaged weights, if the trainer [keeps them](TrainerBuilder::ema).
    pub fn ema(&self) -> Option<&Ema> {
        self.state.ema.as_ref()
    }

    /// Exchanges the model's weights with the averaged ones, to the bit; the same again puts them back, which must be done before
    /// training goes on. Does nothing without averaged weights.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`](crate::Error::Tensor) if a parameter changed its shape or type.
    pub fn swap_ema(&mut self) -> Result<()> {
        match &self.state.ema {
            Some(ema) => ema.swap(&self.state.params),
            None => Ok(()),
        }
    }

    /// The checkpoint that this training was resumed from, if it was; of a folder, the file that was chosen.
    pub fn resumed_from(&self) -> Option<&Path> {
        self.state.resumed_from.as_deref()
    }

    /// What compiling the training step did and cost so far, if the trainer [compiles](TrainerBuilder::compile).
    pub fn compile_metrics(&self) -> Option<&tallow_compile::Metrics> {
        self.compiled
            .as_ref()
            .map(|compiled| compiled.step.metrics())
    }

    /// Writes all that is needed to go on from here, in one safetensors file; see
    /// [`HookContext::save_checkpoint`]. Other [ranks](crate::distributed) than 0 write nothing.
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::Error::File) names the file; a former one is untouched then.
    pub fn save_checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        if !self.state.ranks.is_first() {
            return Ok(());
        }
        checkpoint::save(&self.state, path.as_ref())
    }

    /// Calls one method of every hook, in the order they were added.
    fn notify(
        &mut self,
        mut call: impl FnMut(&mut dyn Hook, &mut HookContext<'_>) -> Result<()>,
    ) -> Result<()> {
        let _span = (!self.hooks.is_empty())
            .then(|| tracing::debug_span!(target: "tallow", "hooks").entered());
        let is_first = self.state.ranks.is_first();
        let hooks = self.hooks.iter_mut();
        for hook in hooks.filter(|hook| is_first || !hook.first_rank_only()) {
            call(hook.as_mut(), &mut HookContext::new(&mut self.state))?;
        }
        Ok(())
    }
}
