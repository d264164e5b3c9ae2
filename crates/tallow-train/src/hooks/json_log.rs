//! [`JsonLog`]: a training as JSON lines, for programs to follow.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use tallow_tensor::params::write_atomically;

use super::{cannot_write, is_new, move_aside};
use crate::checkpoint::make_folder_of;
use crate::{Error, Hook, HookContext, Result};

/// Appends a line of JSON for every epoch, and for every so many steps if asked to.
///
/// ```text
/// {"event":"step","step":50,"epoch":0,"loss":1.91,"lr":0.01}
/// {"event":"epoch","epoch":0,"steps":125,"lr":0.01,"train":{"samples":8000,"loss":0.64,"accuracy":0.77},...}
/// ```
///
/// A line is written at once, so that a killed training leaves at most one torn line. A resume removes that line and those of
/// steps and epochs after the checkpoint, which it does again, so that none appears twice; epochs that are missing are added
/// from the history. A new training gives the file of a former one another name (`log.1.jsonl`).
///
/// ```
/// use tallow_train::hooks::JsonLog;
///
/// let hook = JsonLog::new("runs/first/log.jsonl").every_steps(50);
/// ```
#[derive(Debug)]
#[must_use]
pub struct JsonLog {
    path: PathBuf,
    steps: Option<u64>,
    file: Option<File>,
}

impl JsonLog {
    /// Writes to `path`; missing folders are made.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            steps: None,
            file: None,
        }
    }

    /// Writes a line after every `steps` steps too.
    pub fn every_steps(mut self, steps: u64) -> Self {
        self.steps = Some(steps);
        self
    }

    fn append(&mut self, line: &Value) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let line = format!("{line}\n");
        file.write_all(line.as_bytes())
            .map_err(|error| cannot_write(&self.path, error))
    }

    /// Brings an existing file to where the training stands.
    fn rewind(&self, context: &HookContext<'_>) -> Result<()> {
        let Ok(bytes) = std::fs::read(&self.path) else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(&bytes);
        let epochs = &context.history().epochs;
        let before = |line: &Value| match line["event"].as_str() {
            Some("step") => line["step"]
                .as_u64()
                .is_some_and(|step| step <= context.step()),
            Some("epoch") => line["epoch"]
                .as_u64()
                .is_some_and(|epoch| epoch < epochs.len() as u64),
            _ => true,
        };
        // A torn line has no end, even where what is there of it can be read.
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let parsed =
            whole.filter_map(|line| Some((line, serde_json::from_str::<Value>(line).ok()?)));
        let kept: Vec<(&str, Value)> = parsed.filter(|(_, line)| before(line)).collect();
        let logged = |epoch: u64| {
            let is_it = |line: &Value| line["event"] == "epoch" && line["epoch"] == epoch;
            kept.iter().any(|(_, line)| is_it(line))
        };
        let missing = epochs.iter().filter(|record| !logged(record.epoch));
        let missing: Vec<String> = missing
            .map(|record| format!("{}\n", epoch_line(record)))
            .collect();
        let kept: String = kept.iter().map(|(line, _)| *line).collect();
        write_atomically(&self.path, |file| {
            file.write_all(kept.as_bytes())?;
            file.write_all(missing.concat().as_bytes())
        })?;
        Ok(())
    }
}

fn epoch_line(record: &crate::EpochRecord) -> Value {
    let mut line = json!({"event": "epoch"});
    if let (Some(fields), Ok(Value::Object(record))) =
        (line.as_object_mut(), serde_json::to_value(record))
    {
        fields.extend(record);
    }
    line
}

impl Hook for JsonLog {
    fn first_rank_only(&self) -> bool {
        true
    }

    fn on_fit_begin(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let what = "the interval between lines of a log";
        Error::require(self.steps != Some(0), what, "at least 1 step", &0)?;
        if context.is_dev_run() {
            return Ok(());
        }
        make_folder_of(&self.path)?;
        if is_new(context) {
            move_aside(&self.path)?;
        } else {
            self.rewind(context)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path);
        self.file = Some(file.map_err(|error| cannot_write(&self.path, error))?);
        Ok(())
    }

    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        match self.steps {
            Some(every) if context.step().is_multiple_of(every) => self.append(&json!({
                "event": "step",
                "step": context.step(),
                "epoch": context.epoch(),
                "loss": context.loss(),
                "lr": context.lr(),
            })),
            _ => Ok(()),
        }
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        match context.history().last() {
            Some(record) => self.append(&epoch_line(record)),
            None => Ok(()),
        }
    }

    fn on_fit_end(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        self.file = None;
        Ok(())
    }
}
