//! Training: learning-rate schedules, metrics and the history of a run.

mod error;
mod history;
pub mod metrics;
mod schedule;

pub use error::{BadValue, CheckpointProblem, Error, Result};
pub use history::{EpochRecord, History};
pub use schedule::{Anneal, LrSchedule};
