//! What can go wrong between a model and its delivery.

use std::fmt;
use std::path::{Path, PathBuf};

use tallow_graph::GraphError;

use crate::freeze::Offender;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something couldn't be frozen, saved, loaded, run or delivered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model couldn't be captured, or a file of tensors couldn't be read or written.
    #[error(transparent)]
    Tensor(Box<tallow_tensor::Error>),
    /// The program couldn't be compiled, or a compiled program couldn't run.
    #[error(transparent)]
    Compile(Box<tallow_compile::Error>),
    /// A graph breaks its rules.
    #[error(transparent)]
    Graph(Box<GraphError>),
    /// What candle says.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
    /// Operations that belong to training; each is named with its module.
    #[error("the model isn't in inference:{}", Offenders(.0))]
    NotInference(Vec<Offender>),
    /// Something that a program can't be made of, or asked for.
    #[error("{what} {problem}; {remedy}")]
    Unsupported {
        /// What it is about.
        what: String,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file isn't what it should be.
    #[error("{}: {problem}; {remedy}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A program is given inputs that it isn't made for.
    #[error("the program was given {found}; it is made for {}", .expected.join(", or "))]
    Arguments {
        /// What was given.
        found: String,
        /// What it is made for.
        expected: Vec<String>,
    },
    /// A manifest lacks items, or holds impossible ones; nothing was written.
    #[error("the manifest is not complete, nothing was delivered:{}", Lines(.0))]
    Incomplete(Vec<String>),
    /// A delivery was made, but didn't pass its own verification.
    #[error("the delivery doesn't pass its own verification, nothing was delivered\n{0}")]
    Unverified(Box<crate::Report>),
    /// An ONNX model uses what can't be read, or a program what can't be written.
    #[error("ONNX {operator}{}: {problem}; {remedy}", At(.node))]
    Onnx {
        /// The operator.
        operator: String,
        /// The name of its node.
        node: String,
        /// What can't be done.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file can't be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn io(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    pub(crate) fn unsupported(
        what: impl Into<String>,
        problem: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self::Unsupported {
            what: what.into(),
            problem: problem.into(),
            remedy,
        }
    }
}

impl From<tallow_tensor::Error> for Error {
    fn from(error: tallow_tensor::Error) -> Self {
        Self::Tensor(Box::new(error))
    }
}

impl From<tallow_compile::Error> for Error {
    fn from(error: tallow_compile::Error) -> Self {
        Self::Compile(Box::new(error))
    }
}

impl From<GraphError> for Error {
    fn from(error: GraphError) -> Self {
        Self::Graph(Box::new(error))
    }
}

impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Candle(error) => error,
            error => Self::wrap(error),
        }
    }
}

struct Offenders<'a>(&'a [Offender]);

impl fmt::Display for Offenders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|offender| write!(f, "\n  {offender}"))
    }
}

struct Lines<'a>(&'a [String]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

struct At<'a>(&'a str);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            node => write!(f, " (node `{node}`)"),
        }
    }
}
