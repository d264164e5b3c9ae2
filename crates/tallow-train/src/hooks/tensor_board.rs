//! [`TensorBoard`]: the course of a training as event files that TensorBoard shows.

mod event;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use candle_core::DType;
use serde::{Deserialize, Serialize};

use super::cannot_write;
use crate::checkpoint::make_folder;
use crate::{Error, Hook, HookContext, Result};
use event::{Event, Histogram};

/// Writes event files to a folder, for `tensorboard --logdir` of that folder or one above it.
///
/// | tag | at |
/// |---|---|
/// | `step/loss`, `step/lr` | every ten steps |
/// | `lr`, `train/loss`, `evaluation/accuracy`, `samples_per_second`, ...: all of [`EpochRecord::values`](crate::EpochRecord::values) | the end of every epoch |
/// | `parameters/<name>` | the end of every epoch, with [`histograms`](Self::histograms) |
///
/// The horizontal axis is the number of steps done. A resume writes another file, which says from which step on it replaces the
/// former ones, as PyTorch's `SummaryWriter(purge_step=..)` does.
///
/// ```
/// use tallow_train::hooks::TensorBoard;
///
/// let hook = TensorBoard::new("runs/first/tensorboard").every_steps(50).histograms(true);
/// ```
#[derive(Debug)]
#[must_use]
pub struct TensorBoard {
    folder: PathBuf,
    steps: u64,
    histograms: bool,
    file: Option<(PathBuf, File)>,
}

impl TensorBoard {
    /// Writes to `folder`, which is made if it is missing.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            steps: 10,
            histograms: false,
            file: None,
        }
    }

    /// Writes loss and rate after every `steps` steps.
    pub fn every_steps(mut self, steps: u64) -> Self {
        self.steps = steps;
        self
    }

    /// Writes a histogram of every parameter after each epoch; not by default.
    pub fn histograms(mut self, histograms: bool) -> Self {
        self.histograms = histograms;
        self
    }

    /// Appends an event at once, so that a killed training leaves at most its last one torn, which readers pass over.
    fn append(&mut self, event: Event) -> Result<()> {
        let Some((path, file)) = &mut self.file else {
            return Ok(());
        };
        let written = file.write_all(&event.record());
        written.map_err(|error| cannot_write(path, error))
    }

    fn begin(&mut self, context: &HookContext<'_>) -> Result<()> {
        make_folder(&self.folder)?;
        let path = self.folder.join(next_name(&self.folder));
        let file = File::create_new(&path).map_err(|error| cannot_write(&path, error))?;
        self.file = Some((path, file));
        self.append(Event::version(seconds()))?;
        if context.step() == 0 {
            return Ok(());
        }
        // What is at the checkpoint's own step stays, unless that step was the last of an epoch whose end is still to come:
        // an end that was logged before the training was killed would stand there twice.
        let end_to_come = context.batch() > 0 && context.batches() == Some(context.batch());
        if !end_to_come {
            return self.append(Event::restart(seconds(), context.step() + 1));
        }
        self.append(Event::restart(seconds(), context.step()))?;
        match context.recall::<StepPoint>(KEY)? {
            Some(point) if point.step == context.step() => self.append(point.event()),
            _ => Ok(()),
        }
    }
}

/// Under which the last point of a step stands in checkpoints.
const KEY: &str = "tensor_board.step";

#[derive(Clone, Copy, Serialize, Deserialize)]
struct StepPoint {
    step: u64,
    loss: f64,
    lr: f64,
}

impl StepPoint {
    fn event(self) -> Event {
        let mut event = Event::at(seconds(), self.step);
        event.scalar("step/loss", self.loss);
        event.scalar("step/lr", self.lr);
        event
    }
}

impl Hook for TensorBoard {
    fn first_rank_only(&self) -> bool {
        true
    }

    fn on_fit_begin(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let what = "the interval between events for TensorBoard";
        Error::require(self.steps > 0, what, "at least 1 step", &0)?;
        if context.is_dev_run() {
            return Ok(());
        }
        self.begin(context)
    }

    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        if !context.step().is_multiple_of(self.steps) || self.file.is_none() {
            return Ok(());
        }
        let Some(loss) = context.loss() else {
            return Ok(());
        };
        let point = StepPoint {
            step: context.step(),
            loss,
            lr: context.lr(),
        };
        context.remember(KEY, &point)?;
        self.append(point.event())
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let Some(record) = context.history().last().filter(|_| self.file.is_some()) else {
            return Ok(());
        };
        let mut event = Event::at(seconds(), record.steps);
        for (name, value) in record.values() {
            event.scalar(&name, value);
        }
        if self.histograms {
            for entry in context.params() {
                let values = entry.var.as_detached_tensor().flatten_all()?;
                let values = values.to_dtype(DType::F64)?.to_vec1::<f64>()?;
                if let Some(histogram) = Histogram::of(&values) {
                    event.histogram(&format!("parameters/{}", entry.name), &histogram);
                }
            }
        }
        self.append(event)
    }

    fn on_fit_end(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        self.file = None;
        Ok(())
    }
}

/// Seconds since 1970, which TensorBoard can show instead of steps.
fn seconds() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

const PREFIX: &str = "events.out.tfevents.";

/// A name that comes after those in the folder, since TensorBoard reads files in the order of their names.
fn next_name(folder: &Path) -> String {
    let number = |name: &str| -> Option<u64> {
        let rest = name.strip_prefix(PREFIX)?;
        rest.split('.').next()?.parse().ok()
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let last = entries
        .filter_map(|entry| number(&entry.file_name().to_string_lossy()))
        .max();
    let now = seconds() as u64;
    let number = last.map_or(now, |last| now.max(last.saturating_add(1)));
    format!("{PREFIX}{number:010}.{}.tallow", std::process::id())
}
