//! The one error type of this crate, and how it is laid out.
//!
//! A training ends early for one of six reasons: it was set up wrongly ([`Error::Setting`]), its data fails
//! ([`Error::Data`], [`Error::NoBatches`]), the computation fails ([`Error::Tensor`]) or gives numbers nothing can be
//! learned from ([`Error::NonFinite`], [`Error::NoGradient`]), a checkpoint can't be written or doesn't fit
//! ([`Error::Folder`], [`Error::File`], [`Error::Checkpoint`]), another rank fails ([`Error::Rank`]), or a hook says so
//! ([`Error::Hook`]). Each message says what was
//! asked, what was found, and what to do.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use candle_core::DType;
use tallow_tensor::params::LoadReport;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why training, evaluation or a checkpoint failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting or an argument that makes no sense.
    #[error("{what} must be {expected}, found {found}")]
    Setting {
        /// What was to be set.
        what: &'static str,
        /// What it must be.
        expected: String,
        /// What was given.
        found: String,
    },

    /// The data source failed.
    #[error(transparent)]
    Data(#[from] tallow_data::Error),

    /// An epoch had no batch at all.
    #[error(
        "epoch {epoch} of the {role} source has no batch; a batch size above the number of samples leaves none when the last, partial batch is dropped"
    )]
    NoBatches {
        /// What the source is used for, "training" or "evaluation".
        role: &'static str,
        /// The epoch that was asked for.
        epoch: u64,
    },

    /// A tensor operation failed: in the model, in the loss, or in an update.
    #[error(transparent)]
    Tensor(Box<candle_core::Error>),

    /// The step couldn't be compiled.
    #[error(transparent)]
    Compile(Box<tallow_compile::Error>),

    /// The loss is NaN or infinite. Parameters keep the values they had before the step, buffers such as running
    /// statistics may hold what the forward pass put there; checkpoints written before are untouched.
    #[error("the loss of {place} is {loss}: {cause}")]
    NonFinite {
        /// Which step, or which batch of an evaluation.
        place: String,
        /// The loss.
        loss: f64,
        /// Where the first bad value was found.
        cause: BadValue,
    },

    /// The gradient of a parameter is NaN or infinite, found when it was to be clipped. Nothing was updated.
    #[error(
        "the gradient of `{parameter}` has the norm {norm}, which can't be clipped; lower the learning rate, or look for a division or a logarithm of zero in the loss"
    )]
    NonFiniteGradient {
        /// The first such parameter.
        parameter: String,
        /// The norm of its gradient.
        norm: f64,
    },

    /// A step's loss is finite, but not what follows from it; found by [`NanGuard`](crate::hooks::NanGuard).
    #[error("the loss of step {step} (epoch {epoch}) is {loss}, but {cause}")]
    Spoiled {
        /// The step, counted from 0.
        step: u64,
        /// The epoch, counted from 0.
        epoch: u64,
        /// The loss.
        loss: f64,
        /// Where the first bad value was found.
        cause: BadValue,
    },

    /// No trainable parameter got a gradient.
    #[error(
        "the loss of step {step} depends on none of the {parameters} trainable parameters; check that the model was built from these parameters and that no operation in it detaches (candle's own softmax_last_dim and layer_norm do)"
    )]
    NoGradient {
        /// The step, counted from 0.
        step: u64,
        /// How many trainable parameters there are.
        parameters: usize,
    },

    /// A folder could not be made or read.
    #[error("can't {action} the folder {}: {source}", path.display())]
    Folder {
        /// What was tried, such as "make".
        action: &'static str,
        /// The folder.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },

    /// A file could not be read or written, or is no safetensors file; the message names it.
    #[error(transparent)]
    File(Box<tallow_tensor::Error>),

    /// A checkpoint is damaged, or not one for this training. Nothing was changed.
    #[error("{}: {problem}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: CheckpointProblem,
    },

    /// An optimizer can't take a state.
    #[error("{0}")]
    OptimizerState(String),

    /// A rank ended a training of several [ranks](crate::distributed).
    #[error("rank {rank} ended the run: {problem}")]
    Rank {
        /// Its number.
        rank: usize,
        /// What went wrong there.
        problem: String,
    },

    /// A hook failed; see [`Error::hook`].
    #[error(transparent)]
    Hook(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an error of a hook's own.
    ///
    /// ```
    /// use tallow_train::Error;
    ///
    /// let error = Error::hook("the disk is nearly full");
    /// assert_eq!(error.to_string(), "the disk is nearly full");
    /// ```
    pub fn hook(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Hook(error.into())
    }

    /// [`Error::Setting`] unless `fits`.
    pub(crate) fn require(
        fits: bool,
        what: &'static str,
        expected: &str,
        found: &dyn Display,
    ) -> Result<()> {
        if fits {
            return Ok(());
        }
        Err(Self::Setting {
            what,
            expected: expected.into(),
            found: found.to_string(),
        })
    }

    pub(crate) fn checkpoint(path: &Path, problem: CheckpointProblem) -> Self {
        Self::Checkpoint {
            path: path.to_owned(),
            problem,
        }
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Tensor(Box::new(error))
    }
}

impl From<tallow_tensor::Error> for Error {
    fn from(error: tallow_tensor::Error) -> Self {
        match error {
            tallow_tensor::Error::Candle(error) => error.into(),
            other => Self::File(Box::new(other)),
        }
    }
}

/// Where the value was found that spoiled a loss.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadValue {
    /// A parameter or buffer holds it.
    #[error(
        "parameter `{name}` holds {count} values that are NaN or infinite; lower the learning rate, or begin again from an earlier checkpoint"
    )]
    Parameter {
        /// Its name.
        name: String,
        /// How many such values it holds.
        count: usize,
    },
    /// The images of the batch hold it.
    #[error("the images of the batch hold {count} values that are NaN or infinite; check the data")]
    Images {
        /// How many such values they hold.
        count: usize,
    },
    /// A module made it from good input.
    #[error(
        "its first NaN or infinite value comes out of {operation} in module `{module}`; lower the learning rate, or check that module"
    )]
    Module {
        /// The module's path; empty for the model itself.
        module: String,
        /// The operation in it.
        operation: &'static str,
    },
    /// The model's outputs hold it, but no module that Tallow can look into made it.
    #[error(
        "the model's outputs hold {count} values that are NaN or infinite, while its parameters and the images hold none; lower the learning rate"
    )]
    Outputs {
        /// How many such values they hold.
        count: usize,
    },
    /// The compiled step gives it, the same step run as it is written does not.
    #[error(
        "the outputs of the compiled step hold {count} values that are NaN or infinite, those of the same step without `compile` none; train without it, and report the model"
    )]
    Compiled {
        /// How many such values the outputs hold.
        count: usize,
    },
    /// The gradient of a parameter holds it, which the backward pass reached first of all that do.
    #[error(
        "the gradient of `{name}` in module `{module}` holds {count} values that are NaN or infinite, the first of {spoiled} such gradients on the way back from the loss; nothing was updated; look for a division, a root or a logarithm near zero there, or lower the learning rate"
    )]
    Gradient {
        /// The parameter.
        name: String,
        /// The path of its module; empty for the model itself.
        module: String,
        /// How many such values it holds.
        count: usize,
        /// How many gradients hold such values.
        spoiled: usize,
    },
    /// The update of a parameter made it from a finite gradient.
    #[error(
        "the update of `{name}` in module `{module}` made {count} values that are NaN or infinite from a finite gradient; lower the learning rate, and begin again from an earlier checkpoint"
    )]
    Update {
        /// The parameter.
        name: String,
        /// The path of its module; empty for the model itself.
        module: String,
        /// How many such values it holds.
        count: usize,
    },
    /// Everything up to the loss function is finite.
    #[error(
        "parameters, images and outputs of the model are finite, so the loss function itself gives it (does every label of the batch carry the ignored index?)"
    )]
    Loss,
}

/// What is wrong with a checkpoint that could be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointProblem {
    /// The file holds tensors, but no state of a training.
    #[error(
        "a safetensors file without the state of a training; to start from its parameters alone, load them with `Params::load`"
    )]
    NoTraining,

    /// The state of the training can't be read.
    #[error("its training state can't be read ({0}); take an earlier checkpoint")]
    Metadata(String),

    /// A later version of the format.
    #[error("format version {found}, this program reads up to version {supported}; update Tallow")]
    Version {
        /// The version of the file.
        found: u32,
        /// The last version that is understood.
        supported: u32,
    },

    /// A folder holds no checkpoint that is whole.
    #[error("{}", none_whole(damaged))]
    NoneWhole {
        /// What is wrong with each file.
        damaged: Vec<String>,
    },

    /// Bytes of a tensor were changed after it was written.
    #[error("tensor `{name}` is damaged (its checksum does not fit); take an earlier checkpoint")]
    Damaged {
        /// The tensor.
        name: String,
    },

    /// The parameters are those of another model.
    #[error("a checkpoint of another model: {0}")]
    OtherModel(Box<LoadReport>),

    /// A parameter has another element type.
    #[error(
        "`{name}` is {found:?} in the checkpoint and {expected:?} in the model; build the model with the checkpoint's type, or load the parameters alone with `Params::load`"
    )]
    OtherType {
        /// The first such parameter.
        name: String,
        /// The model's type.
        expected: DType,
        /// The checkpoint's type.
        found: DType,
    },

    /// The optimizer is another one, or its state does not fit.
    #[error("its optimizer state does not fit: {0}")]
    Optimizer(String),
}

fn none_whole(damaged: &[String]) -> String {
    match damaged {
        [] => {
            "the folder holds no checkpoint (no .safetensors file); check the path, or begin anew"
                .to_string()
        }
        damaged => format!(
            "the folder holds no checkpoint that is whole; take one from elsewhere, or begin anew\n  {}",
            damaged.join("\n  ")
        ),
    }
}

impl From<tallow_compile::Error> for Error {
    fn from(error: tallow_compile::Error) -> Self {
        match error {
            tallow_compile::Error::Candle(error) => error.into(),
            error => Self::Compile(Box::new(error)),
        }
    }
}
