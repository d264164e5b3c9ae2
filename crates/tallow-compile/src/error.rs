//! What can go wrong between a model and its compiled form.

use tallow_graph::{GraphError, TensorType};

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something couldn't be compiled, or a compiled thing couldn't run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model couldn't be captured; graph breaks are listed with module, operation, reason and remedy.
    #[error(transparent)]
    Capture(Box<tallow_tensor::Error>),
    /// A pass was given, or made, a graph that breaks the rules: a fault of the compiler.
    #[error(
        "pass `{pass}` {when} a graph that breaks the rules: {source}; this is a fault of the compiler, \
         switch the pass off with `Options::without_pass(\"{pass}\")` until it is mended"
    )]
    Pass {
        /// The pass.
        pass: &'static str,
        /// `was given` or `made`.
        when: &'static str,
        /// The broken rule.
        source: Box<GraphError>,
    },
    /// An option names a pass that there isn't.
    #[error("there is no pass `{name}`; the passes are {known}")]
    UnknownPass {
        /// The name that was given.
        name: String,
        /// All names.
        known: String,
    },
    /// An operation that the compiler can't run, or can't take the gradient of.
    #[error("{operation}{} {problem}; {remedy}", place(.module))]
    Unsupported {
        /// The operation.
        operation: String,
        /// The path of its module.
        module: String,
        /// What can't be done.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// An input has an element type or a device that a compiled plan can't take.
    #[error("input `{name}` is {found}; compiled plans take {expected}")]
    Input {
        /// The input.
        name: String,
        /// What was given.
        found: String,
        /// What can be given.
        expected: &'static str,
    },
    /// A compiled graph is given inputs of another number or type than it is made for.
    #[error("the program takes {expected}, found {found}; give inputs of exactly these types")]
    Arguments {
        /// What was given.
        found: String,
        /// What the graph takes.
        expected: String,
    },
    /// A new shape signature, with as many plans compiled as are allowed.
    #[error(
        "a plan for {found} would be plan number {}, and the cache limit is {limit}; compiled already: {}. \
         Give batches of one shape (drop the last partial one), or raise `Options::cache_limit`",
        .known.len() + 1, .known.join("; ")
    )]
    CacheLimit {
        /// The limit.
        limit: usize,
        /// The signatures that have a plan.
        known: Vec<String>,
        /// The new one.
        found: String,
    },
    /// The loss of a training step isn't one number.
    #[error(
        "the loss is {found}, not a scalar; reduce it, for example with `ops::mean` over all dimensions"
    )]
    LossNotScalar {
        /// The loss's type.
        found: TensorType,
    },
    /// The loss isn't made by recorded operations from the parameters.
    #[error(
        "the loss depends on no trainable parameter: {trainable} of {parameters} parameters are trainable; unfreeze \
         those that should learn, and build the model from the `Params` that the trainer has"
    )]
    NothingToTrain {
        /// Parameters in the graph.
        parameters: usize,
        /// Those that are trainable.
        trainable: usize,
    },
    /// A graph couldn't be built.
    #[error(transparent)]
    Graph(Box<GraphError>),
    /// A kernel refused to run.
    #[error("{operation}{}: {source}", place(.module))]
    Kernel {
        /// The operation.
        operation: &'static str,
        /// The path of its module.
        module: String,
        /// What the kernel says.
        source: Box<tallow_kernels::Error>,
    },
    /// What candle says.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
    /// A file couldn't be written.
    #[error("can't write {path}: {source}; check the folder and its permissions")]
    Write {
        /// The file.
        path: std::path::PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

fn place(module: &str) -> String {
    match module {
        "" => String::new(),
        module => format!(" in module `{module}`"),
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

impl From<tallow_tensor::Error> for Error {
    fn from(error: tallow_tensor::Error) -> Self {
        Self::Capture(Box::new(error))
    }
}

impl From<GraphError> for Error {
    fn from(error: GraphError) -> Self {
        Self::Graph(Box::new(error))
    }
}
