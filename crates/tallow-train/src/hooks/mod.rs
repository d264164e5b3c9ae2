//! Hooks for what most trainings want: files to resume from, reasons to stop, logs, and numbers a class.
//!
//! Each is an ordinary user of [`Hook`](crate::Hook), so each can be left out, replaced, or read as an example. They are
//! called in the order in which they are added; add those that record numbers first, then those that log or judge them,
//! then checkpoints, which then hold all of it.
//!
//! | hook | does |
//! |---|---|
//! | [`CheckpointFolder`] | keeps the last checkpoints and the best by a metric |
//! | [`EarlyStopping`] | stops when a metric no longer improves, and restores the best parameters |
//! | [`TimeLimit`], [`Interrupt`] | stop after a time, or at Ctrl-C |
//! | [`NanGuard`] | looks for NaN and infinity in gradients and updates |
//! | [`CsvLog`], [`JsonLog`], [`TensorBoard`] | log to files |
//! | [`ClassScores`] | confusion matrix, precision, recall and F1 of every evaluation |
//! | [`RunFolder`] | all files of a run in one folder |

mod checkpoint_folder;
mod class_scores;
mod csv_log;
mod curves;
mod early_stopping;
mod interrupt;
mod json_log;
mod nan_guard;
mod run_folder;
mod tensor_board;
mod time_limit;

use std::path::Path;

pub use checkpoint_folder::CheckpointFolder;
pub use class_scores::{ClassScores, LastMatrix};
pub use csv_log::CsvLog;
pub use early_stopping::EarlyStopping;
pub use interrupt::Interrupt;
pub use json_log::JsonLog;
pub use nan_guard::NanGuard;
pub use run_folder::RunFolder;
pub use tensor_board::TensorBoard;
pub use time_limit::TimeLimit;

use crate::{Error, HookContext, Result};

/// Which of two values of a metric is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// The higher one: accuracy, F1.
    Higher,
    /// The lower one: a loss.
    Lower,
}

impl Better {
    /// Whether `value` is better than `best` by more than `delta`; NaN never is.
    fn improves(self, value: f64, best: f64, delta: f64) -> bool {
        match self {
            Self::Higher => value > best + delta,
            Self::Lower => value < best - delta,
        }
    }
}

/// A metric's name where slashes can't stand.
fn without_slashes(metric: &str) -> String {
    metric.replace(['/', '\\', ' '], "-")
}

/// Whether nothing of the training is done yet.
fn is_new(context: &HookContext<'_>) -> bool {
    context.step() == 0 && context.history().epochs.is_empty()
}

/// Gives the file of a former training another name: `log.csv` becomes `log.1.csv`, or the first such name that is free.
fn move_aside(path: &Path) -> Result<()> {
    if std::fs::metadata(path).map_or(true, |file| file.len() == 0) {
        return Ok(());
    }
    let part =
        |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, ending) = (part(path.file_stem()), part(path.extension()));
    let names = (1u64..).map(|number| path.with_file_name(format!("{stem}.{number}.{ending}")));
    let free = names.into_iter().find(|name| !name.exists());
    let free = free.unwrap_or_else(|| path.with_extension("old"));
    std::fs::rename(path, free).map_err(|error| cannot_write(path, error))
}

fn cannot_write(path: &Path, source: std::io::Error) -> Error {
    let path = path.to_owned();
    Error::File(Box::new(tallow_tensor::Error::Io {
        action: "write",
        path,
        source,
    }))
}
