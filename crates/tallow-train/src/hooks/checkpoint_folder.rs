//! [`CheckpointFolder`]: which checkpoints of a training are kept.

use std::fs;
use std::path::{Path, PathBuf};

use tallow_tensor::params::{remove_unfinished, write_atomically};

use super::{Better, is_new, without_slashes};
use crate::checkpoint::{LATEST, Stand, has_checkpoints, make_folder};
use crate::{Error, Hook, HookContext, Result};

/// Keeps the last checkpoints of a training in a folder, and the best ones by metrics of your choice.
///
/// | file | holds |
/// |---|---|
/// | `step-0000000500.safetensors` | the training after 500 steps; the last three such files are kept |
/// | `best-evaluation-accuracy.safetensors` | the training after the epoch with the best value of that metric |
/// | `latest` | the name of the file written last, as text |
///
/// Give the folder to [`TrainerBuilder::resume`](crate::TrainerBuilder::resume) to go on from the file that `latest` names or,
/// if that is damaged, from the furthest that is whole. Every file is written whole or not at all, and an older one is removed
/// only after it. What a training that was killed had begun to write is removed by the next one.
///
/// A new training refuses a folder that holds checkpoints already.
///
/// ```
/// use tallow_train::hooks::{Better, CheckpointFolder};
///
/// let hook = CheckpointFolder::new("runs/first/checkpoints")
///     .every_steps(500)
///     .keep_last(2)
///     .best("evaluation/accuracy", Better::Higher);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct CheckpointFolder {
    folder: PathBuf,
    steps: Option<u64>,
    epochs: Option<u64>,
    keep: usize,
    best: Vec<(String, Better)>,
    written: Option<Stand>,
}

impl CheckpointFolder {
    /// Writes to `folder` after every epoch and when `fit` ends, and keeps the last three.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            steps: None,
            epochs: Some(1),
            keep: 3,
            best: Vec::new(),
            written: None,
        }
    }

    /// Writes after every `steps` steps too, counted over the whole training.
    pub fn every_steps(mut self, steps: u64) -> Self {
        self.steps = Some(steps);
        self
    }

    /// Writes after every `epochs` epochs instead of each.
    pub fn every_epochs(mut self, epochs: u64) -> Self {
        self.epochs = Some(epochs);
        self
    }

    /// Keeps the last `count` checkpoints instead of three, at least one.
    pub fn keep_last(mut self, count: usize) -> Self {
        self.keep = count;
        self
    }

    /// Keeps the best checkpoint by a metric too, named as in [`EpochRecord::values`](crate::EpochRecord::values); of equal
    /// ones the first. May be called for several metrics.
    pub fn best(mut self, metric: &str, better: Better) -> Self {
        self.best.push((metric.to_string(), better));
        self
    }

    fn write(&mut self, context: &HookContext<'_>) -> Result<()> {
        let name = file_name(context.step());
        context.save_checkpoint(self.folder.join(&name))?;
        if context.is_dev_run() {
            return Ok(());
        }
        write_atomically(self.folder.join(LATEST), |file| writeln!(file, "{name}"))?;
        self.written = Some(stand(context));
        self.remove_older(&name)
    }

    /// Removes what came before the last `keep` files up to `newest`. Files of later steps, which were there before this
    /// training went back, are not its own to remove.
    fn remove_older(&self, newest: &str) -> Result<()> {
        let mut names = steps_in(&self.folder)?;
        names.retain(|name| name.as_str() <= newest);
        names.sort();
        let surplus = names.len().saturating_sub(self.keep);
        for name in &names[..surplus] {
            let path = self.folder.join(name);
            fs::remove_file(&path).map_err(|source| {
                Error::File(Box::new(tallow_tensor::Error::Io {
                    action: "remove",
                    path,
                    source,
                }))
            })?;
        }
        Ok(())
    }

    /// Writes those of the best that the epoch just finished is.
    fn write_best(&self, context: &HookContext<'_>) -> Result<()> {
        let Some((last, before)) = context.history().epochs.split_last() else {
            return Ok(());
        };
        for (metric, better) in &self.best {
            let value = last.value(metric)?;
            let mut earlier = before.iter().filter_map(|record| record.value(metric).ok());
            let is_best = earlier.all(|other| better.improves(value, other, 0.0));
            if is_best && !value.is_nan() {
                let name = format!("best-{}.safetensors", without_slashes(metric));
                context.save_checkpoint(self.folder.join(name))?;
            }
        }
        Ok(())
    }
}

fn file_name(step: u64) -> String {
    format!("step-{step:010}.safetensors")
}

fn stand(context: &HookContext<'_>) -> Stand {
    Stand {
        steps: context.step(),
        epochs: context.history().epochs.len() as u64,
    }
}

/// The names of the files of a folder that [`file_name`] gave.
fn steps_in(folder: &Path) -> Result<Vec<String>> {
    let unreadable = |source| Error::Folder {
        action: "read",
        path: folder.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let name = name.to_string_lossy();
        let number = name
            .strip_prefix("step-")
            .and_then(|name| name.strip_suffix(".safetensors"));
        if number.is_some_and(|digits| digits.parse::<u64>().is_ok()) {
            names.push(name.into_owned());
        }
    }
    Ok(names)
}

impl Hook for CheckpointFolder {
    fn first_rank_only(&self) -> bool {
        true
    }

    fn on_fit_begin(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let zero = self.steps == Some(0) || self.epochs == Some(0);
        Error::require(!zero, "the interval between checkpoints", "at least 1", &0)?;
        Error::require(
            self.keep > 0,
            "the number of checkpoints to keep",
            "at least 1",
            &0,
        )?;
        if context.is_dev_run() {
            return Ok(());
        }
        let occupied = is_new(context) && has_checkpoints(&self.folder)?;
        Error::require(
            !occupied,
            "the folder for the checkpoints of a new training",
            "without checkpoints; resume from it, or choose another",
            &self.folder.display(),
        )?;
        make_folder(&self.folder)?;
        // What a killed training had begun to write.
        let is_ours = |name: &str| name == LATEST || name.ends_with(".safetensors");
        remove_unfinished(&self.folder, is_ours)?;
        Ok(())
    }

    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        match self.steps {
            Some(every) if context.step().is_multiple_of(every) => self.write(context),
            _ => Ok(()),
        }
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        // The best first: once the last is written, a resume doesn't come back to this epoch.
        self.write_best(context)?;
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
