//! [`RunFolder`]: all files of a training in one place.

use std::path::{Path, PathBuf};

use tallow_tensor::params::{remove_unfinished, write_atomically};

use super::{Better, CheckpointFolder, CsvLog, JsonLog, TensorBoard, curves};
use crate::checkpoint::{has_checkpoints, make_folder};
use crate::{Error, Hook, HookContext, Result};

/// A folder for the files of one training, for [`TrainerBuilder::run_folder`](crate::TrainerBuilder::run_folder):
///
/// | | |
/// |---|---|
/// | `config.json` | the settings |
/// | `log.csv`, `log.jsonl` | see [`CsvLog`] and [`JsonLog`] |
/// | `curves.svg` | loss and accuracy over the epochs |
/// | `tensorboard/` | see [`TensorBoard`] |
/// | `checkpoints/` | see [`CheckpointFolder`] |
///
/// ```
/// use tallow_train::hooks::{Better, RunFolder};
///
/// // Goes on with the run in the folder if there is one, however it ended, and else begins it.
/// let run = RunFolder::new("runs/first").resume(true).best("evaluation/accuracy", Better::Higher);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct RunFolder {
    path: PathBuf,
    resume: bool,
    checkpoints: CheckpointFolder,
    log_steps: u64,
    tensor_board: bool,
}

impl RunFolder {
    /// For a new run in `path`, which must not hold one yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self {
            checkpoints: CheckpointFolder::new(path.join("checkpoints")),
            path,
            resume: false,
            log_steps: 10,
            tensor_board: true,
        }
    }

    /// Whether a run that the folder holds is gone on with, from its newest whole checkpoint; one that was killed before its
    /// first checkpoint begins anew.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Writes a checkpoint after every `steps` steps too.
    pub fn checkpoint_every_steps(mut self, steps: u64) -> Self {
        self.checkpoints = self.checkpoints.every_steps(steps);
        self
    }

    /// Keeps the last `count` checkpoints instead of three.
    pub fn keep_last(mut self, count: usize) -> Self {
        self.checkpoints = self.checkpoints.keep_last(count);
        self
    }

    /// Keeps the best checkpoint by a metric, see [`CheckpointFolder::best`].
    pub fn best(mut self, metric: &str, better: Better) -> Self {
        self.checkpoints = self.checkpoints.best(metric, better);
        self
    }

    /// Logs loss and rate after every `steps` steps instead of ten.
    pub fn log_every_steps(mut self, steps: u64) -> Self {
        self.log_steps = steps;
        self
    }

    /// Whether event files for TensorBoard are written; yes by default.
    pub fn tensor_board(mut self, write: bool) -> Self {
        self.tensor_board = write;
        self
    }

    /// The folder of the checkpoints if they are to be resumed from.
    pub(crate) fn resume_from(&self) -> Result<Option<PathBuf>> {
        let checkpoints = self.path.join("checkpoints");
        if self.resume {
            return Ok(has_checkpoints(&checkpoints)?.then_some(checkpoints));
        }
        let occupied = self.config().exists() || has_checkpoints(&checkpoints)?;
        Error::require(
            !occupied,
            "the folder of a new run",
            "without a run; go on with that one by `RunFolder::resume(true)`, or choose another",
            &self.path.display(),
        )?;
        Ok(None)
    }

    fn config(&self) -> PathBuf {
        self.path.join("config.json")
    }

    /// Logs first, so that a checkpoint never stands for steps that aren't logged.
    pub(crate) fn hooks(self) -> Vec<Box<dyn Hook>> {
        let report = Report {
            config: self.config(),
            curves: self.path.join("curves.svg"),
        };
        let json = JsonLog::new(self.path.join("log.jsonl")).every_steps(self.log_steps);
        let mut hooks: Vec<Box<dyn Hook>> = vec![
            Box::new(report),
            Box::new(CsvLog::new(self.path.join("log.csv"))),
            Box::new(json),
        ];
        if self.tensor_board {
            let hook = TensorBoard::new(self.path.join("tensorboard"));
            hooks.push(Box::new(hook.every_steps(self.log_steps)));
        }
        hooks.push(Box::new(self.checkpoints));
        hooks
    }
}

impl From<&str> for RunFolder {
    fn from(path: &str) -> Self {
        Self::new(path)
    }
}

impl From<&Path> for RunFolder {
    fn from(path: &Path) -> Self {
        Self::new(path)
    }
}

impl From<PathBuf> for RunFolder {
    fn from(path: PathBuf) -> Self {
        Self::new(path)
    }
}

/// Writes the settings and the curves.
struct Report {
    config: PathBuf,
    curves: PathBuf,
}

impl Report {
    fn draw(&self, context: &HookContext<'_>) -> Result<()> {
        let epochs = &context.history().epochs;
        if epochs.is_empty() {
            return Ok(());
        }
        let svg = curves::svg(epochs)?;
        write_atomically(&self.curves, |file| file.write_all(svg.as_bytes()))?;
        Ok(())
    }
}

impl Hook for Report {
    fn first_rank_only(&self) -> bool {
        true
    }

    fn on_fit_begin(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        if let Some(folder) = self.config.parent() {
            make_folder(folder)?;
            // What a killed training had begun to write.
            let ours = ["config.json", "curves.svg", "log.csv", "log.jsonl"];
            remove_unfinished(folder, |name| ours.contains(&name))?;
        }
        let settings = format!("{:#}\n", context.settings());
        write_atomically(&self.config, |file| file.write_all(settings.as_bytes()))?;
        self.draw(context)
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.draw(context)
    }
}
