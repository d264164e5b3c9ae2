//! Checkpoints: all of a training in one safetensors file, written whole or not at all, resumed to the bit.
//!
//! The model's parameters and buffers stand in the file under their own names, so that
//! [`Params::load`](tallow_tensor::Params::load) and Python read it as they read any weights. The optimizer's tensors
//! stand under a reserved prefix, `__tallow__.optimizer.<slot>.<parameter>`, averaged weights under `__tallow__.ema.`, and everything else is JSON in the file's
//! metadata under the key `tallow`. The format is in `format`; when to write is decided by [`Checkpointing`] or a hook
//! of your own; that a file is replaced as a whole is the work of [`tallow_tensor::params::write_tensors`].

mod format;
mod hook;
mod newest;

use std::path::Path;

use candle_core::Tensor;
use indexmap::IndexMap;
use tallow_tensor::params::{Params, Strict};
use tallow_tensor::rng;

use crate::trainer::{Memory, State};
use crate::{CheckpointProblem, Ema, Error, Result};
use format::{Checkpoint, EmaMetadata, Metadata, OptimizerMetadata};

pub(crate) use format::Stand;
pub use hook::Checkpointing;
pub(crate) use newest::{LATEST, has_checkpoints};

/// Writes the whole of a training to `path`, whose folder is made if it is missing.
pub(crate) fn save(state: &State, path: &Path) -> Result<()> {
    make_folder_of(path)?;
    let optimizer = state.optimizer.state();
    let entries = state.params.iter();
    let frozen = entries.filter(|entry| entry.frozen);
    let metadata = Metadata {
        training: state.position.clone(),
        rng: rng::state(),
        frozen: frozen.map(|entry| entry.name).collect(),
        optimizer: OptimizerMetadata::of(&optimizer),
        ema: state.ema.as_ref().map(EmaMetadata::of),
        remembered: state.memory.values.clone(),
    };
    let entries = state.params.iter();
    let parameters = entries.map(|entry| (entry.name, entry.var.as_detached_tensor()));
    let checkpoint = Checkpoint {
        tensors: parameters.collect(),
        optimizer,
        ema: state.ema.as_ref().map(Ema::tensors).unwrap_or_default(),
        metadata,
        remembered: state.memory.tensors.clone(),
    };
    checkpoint.write(path)
}

/// Puts a training where the checkpoint at `path` stands; of a folder, the newest whole one in it. On an error the
/// parameters are unchanged.
pub(crate) fn resume(state: &mut State, path: &Path) -> Result<()> {
    if path.is_dir() {
        newest::resume_newest(state, path)
    } else {
        resume_file(state, path)
    }
}

fn resume_file(state: &mut State, path: &Path) -> Result<()> {
    let checkpoint = Checkpoint::read(path, state.params.device())?;
    let refuse = |problem| Error::checkpoint(path, problem);
    same_types(&state.params, &checkpoint.tensors).map_err(refuse)?;
    let ema = match &checkpoint.metadata.ema {
        Some(ema) => Some(ema.with_tensors(&checkpoint.ema)?),
        None => None,
    };
    let loaded = state.optimizer.load_state(&checkpoint.optimizer);
    loaded.map_err(|error| refuse(CheckpointProblem::Optimizer(error.to_string())))?;

    let loaded = state.params.load_tensors(&checkpoint.tensors, Strict::Yes);
    loaded.map_err(|error| match error {
        tallow_tensor::Error::Load { report, .. } => refuse(CheckpointProblem::OtherModel(report)),
        other => other.into(),
    })?;
    let metadata = checkpoint.metadata;
    state.params.freeze_exactly(&metadata.frozen);
    if let Some(ema) = ema {
        state.ema = Some(ema);
    }
    rng::restore(metadata.rng);
    state.position = metadata.training;
    state.lr = state.position.last_lr.unwrap_or(state.position.base_lr);
    state.current_epoch = state.position.epoch;
    state.current_batch = state.position.batch;
    state.memory = Memory {
        values: metadata.remembered,
        tensors: checkpoint.remembered,
    };
    state.resumed_from = Some(path.to_owned());
    Ok(())
}

/// Loading weights converts between float types; going on with a training to the bit can't.
fn same_types(
    params: &Params,
    tensors: &IndexMap<String, Tensor>,
) -> Result<(), CheckpointProblem> {
    for entry in params {
        let stored = tensors.get(&entry.name).map(Tensor::dtype);
        if let Some(found) = stored.filter(|&stored| stored != entry.var.dtype()) {
            return Err(CheckpointProblem::OtherType {
                expected: entry.var.dtype(),
                found,
                name: entry.name,
            });
        }
    }
    Ok(())
}

/// Makes a folder and those above it.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|source| Error::Folder {
        action: "make",
        path: path.to_owned(),
        source,
    })
}

/// Makes the folder that `path` lies in.
pub(crate) fn make_folder_of(path: &Path) -> Result<()> {
    make_folder(folder_of(path))
}

/// The folder that `path` lies in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
