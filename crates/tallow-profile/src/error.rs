//! What can go wrong with a profile: starting one, and writing one.

use std::path::PathBuf;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a profiler couldn't start, or a report couldn't be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another profiler of this process is recording.
    #[error(
        "a profiler is to start, but another one is recording in this process; finish that one first"
    )]
    Busy,

    /// Another subscriber listens to `tracing`, without a profiler's layer in it.
    #[error(
        "a profiler is to listen to `tracing`, but this process has another global subscriber; \
         add `tallow_profile::layer()` to it: `tracing_subscriber::registry().with(..).with(tallow_profile::layer())`"
    )]
    OtherSubscriber,

    /// A setting that makes no sense.
    #[error("{what} must be {expected}, found {found}")]
    Setting {
        /// What was to be set.
        what: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What was given.
        found: String,
    },

    /// A report couldn't be written.
    #[error("can't write the report {}: {source}", .path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },

    /// A flame graph couldn't be drawn.
    #[error("can't draw the flame graph: {0}; profile a stretch in which something runs")]
    Flame(String),
}
