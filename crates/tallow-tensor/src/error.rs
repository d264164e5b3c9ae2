//! The one error type of this crate.
//!
//! Operations return candle's `Result`, so that models are plain candle code; there an [`Error`] travels wrapped
//! (`From<Error> for candle_core::Error`) and shows the same message. Everything that isn't called from inside a
//! model (parameters, files, capture) returns [`Error`] itself.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use tallow_graph::{GraphError, ShapeError};

use crate::capture::Break;
use crate::params::LoadReport;
use crate::scope;

/// A `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong. The message says what was asked, what was found, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation can't take its inputs.
    #[error("{}{source}", In(.module))]
    Shape {
        /// The module that was running.
        module: String,
        /// What the operation says.
        source: Box<ShapeError>,
    },
    /// candle failed.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
    /// A graph breaks its own rules.
    #[error(transparent)]
    Graph(Box<GraphError>),
    /// A file can't be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {problem}; {remedy}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Names or shapes of a file or a set of tensors aren't those of the model; nothing was changed.
    #[error("{origin} does not fit this model, nothing was loaded\n{report}")]
    Load {
        /// The file, or `the given tensors`.
        origin: String,
        /// What fits and what doesn't.
        report: Box<LoadReport>,
    },
    /// A parameter was asked for in a way that doesn't fit the one that exists.
    #[error("parameter `{name}`: {problem}; {remedy}")]
    Parameter {
        /// Its full name.
        name: String,
        /// What doesn't fit.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An element type that this crate has no use for.
    #[error(
        "{what} has element type {dtype:?}, which is not supported; convert it to f32, f64, f16, bf16, u8, u32 or i64"
    )]
    DType {
        /// The value.
        what: String,
        /// Its type.
        dtype: candle_core::DType,
    },
    /// A model can't be captured whole.
    #[error("{}", Breaks(.0))]
    GraphBreaks(Vec<Break>),
    /// A capture was started inside another one.
    #[error("a capture is already running on this thread; finish it before starting another")]
    NestedCapture,
}

impl Error {
    /// A shape error in the module that is running.
    pub fn shape(source: ShapeError) -> Self {
        Self::Shape {
            module: scope::path(),
            source: Box::new(source),
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    }
}

impl From<ShapeError> for Error {
    fn from(source: ShapeError) -> Self {
        Self::shape(source)
    }
}

impl From<GraphError> for Error {
    fn from(source: GraphError) -> Self {
        Self::Graph(Box::new(source))
    }
}

impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Candle(inner) => inner,
            other => candle_core::Error::wrap(other),
        }
    }
}

/// `in module `layer1.0`: `, or nothing at the root.
struct In<'a>(&'a str);

impl fmt::Display for In<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            module => write!(f, "in module `{module}`: "),
        }
    }
}

struct Breaks<'a>(&'a [Break]);

impl fmt::Display for Breaks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let plural = if count == 1 { "" } else { "s" };
        write!(
            f,
            "the model can't be captured whole: {count} graph break{plural}"
        )?;
        for (i, found) in self.0.iter().enumerate() {
            write!(f, "\n{}. {found}", i + 1)?;
        }
        Ok(())
    }
}
