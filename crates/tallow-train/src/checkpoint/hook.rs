//! When to write checkpoints: [`Checkpointing`].

use std::path::PathBuf;

use tallow_tensor::params::remove_unfinished;

use super::{folder_of, make_folder_of};
use crate::{Error, Hook, HookContext, Result};

/// A hook that writes a checkpoint at the end of a training and, if asked to, every so many steps or epochs.
///
/// Each checkpoint replaces the one before it. For several files, or the best, see
/// [`CheckpointFolder`](crate::hooks::CheckpointFolder).
///
/// ```
/// use tallow_train::Checkpointing;
///
/// let hook = Checkpointing::new("runs/first/checkpoint.safetensors").every_steps(500).every_epochs(1);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Checkpointing {
    path: PathBuf,
    steps: Option<u64>,
    epochs: Option<u64>,
    /// Epoch and step of the last one written.
    written: Option<[u64; 2]>,
}

impl Checkpointing {
    /// Writes to `path` when `fit` ends. Missing folders are made when it begins.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            steps: None,
            epochs: None,
            written: None,
        }
    }

    /// Writes after every `steps` steps, counted over the whole training.
    pub fn every_steps(mut self, steps: u64) -> Self {
        self.steps = Some(steps);
        self
    }

    /// Writes after every `epochs` epochs and their evaluation.
    pub fn every_epochs(mut self, epochs: u64) -> Self {
        self.epochs = Some(epochs);
        self
    }

    fn write(&mut self, context: &HookContext<'_>) -> Result<()> {
        context.save_checkpoint(&self.path)?;
        self.written = Some(stand(context));
        Ok(())
    }
}

/// Finished epochs and steps, which change together with everything else in a checkpoint.
fn stand(context: &HookContext<'_>) -> [u64; 2] {
    [context.history().epochs.len() as u64, context.step()]
}

impl Hook for Checkpointing {
    fn first_rank_only(&self) -> bool {
        true
    }

    fn on_fit_begin(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let zero = self.steps == Some(0) || self.epochs == Some(0);
        Error::require(!zero, "the interval between checkpoints", "at least 1", &0)?;
        make_folder_of(&self.path)?;
        if context.is_dev_run() {
            return Ok(());
        }
        // What a killed training had begun to write.
        let name = self.path.file_name().unwrap_or_default();
        remove_unfinished(folder_of(&self.path), |of| name == of)?;
        Ok(())
    }

    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        match self.steps {
            Some(every) if context.step().is_multiple_of(every) => self.write(context),
            _ => Ok(()),
        }
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        match self.epochs {
            Some(every) if (context.epoch() + 1).is_multiple_of(every) => self.write(context),
            _ => Ok(()),
        }
    }

    fn on_fit_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        if self.written == Some(stand(context)) {
            return Ok(());
        }
        self.write(context)
    }
}
