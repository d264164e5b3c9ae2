//! [`CsvLog`]: the history as a table.

use std::path::PathBuf;

use tallow_tensor::params::write_atomically;

use super::{is_new, move_aside};
use crate::checkpoint::make_folder_of;
use crate::{EpochRecord, Hook, HookContext, Result};

/// Writes a row for every epoch to a CSV file: `epoch`, `steps`, and a column for every number of
/// [`EpochRecord::values`](crate::EpochRecord::values), empty where an epoch lacks it.
///
/// The file is the history of the training, replaced as a whole after every epoch: it has no torn line, and after a resume no
/// epoch twice and none that was lost. A new training gives the file of a former one another name (`log.1.csv`).
///
/// ```
/// use tallow_train::hooks::CsvLog;
///
/// let hook = CsvLog::new("runs/first/log.csv");
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct CsvLog {
    path: PathBuf,
}

impl CsvLog {
    /// Writes to `path`; missing folders are made.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn write(&self, context: &HookContext<'_>) -> Result<()> {
        let epochs = &context.history().epochs;
        if epochs.is_empty() || context.is_dev_run() {
            return Ok(());
        }
        let table = table(epochs);
        write_atomically(&self.path, |file| file.write_all(table.as_bytes()))?;
        Ok(())
    }
}

impl Hook for CsvLog {
    fn first_rank_only(&self) -> bool {
        true
    }

    fn on_fit_begin(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        if context.is_dev_run() {
            return Ok(());
        }
        make_folder_of(&self.path)?;
        if is_new(context) {
            move_aside(&self.path)?;
        }
        self.write(context)
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.write(context)
    }

    fn on_fit_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        // What other hooks recorded after this one was called.
        self.write(context)
    }
}

fn table(epochs: &[EpochRecord]) -> String {
    let rows: Vec<Vec<(String, f64)>> = epochs.iter().map(EpochRecord::values).collect();
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let mut table = String::from("epoch,steps");
    for column in &columns {
        table.push(',');
        table.push_str(&quoted(column));
    }
    table.push('\n');
    for (record, row) in epochs.iter().zip(&rows) {
        table.push_str(&format!("{},{}", record.epoch, record.steps));
        for column in &columns {
            let value = row.iter().find(|(name, _)| name == column);
            table.push(',');
            table.push_str(&value.map_or(String::new(), |(_, value)| value.to_string()));
        }
        table.push('\n');
    }
    table
}

/// A field as RFC 4180 wants it.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_string()
    }
}
