//! The checkpoint format, version 1: names, metadata and checksums of a safetensors file.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::{Device, Tensor};
use indexmap::IndexMap;
use safetensors::View;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tallow_tensor::params::{Metadata as FileMetadata, RESERVED_PREFIX, TensorFile, write_tensors};
use tallow_tensor::rng;

use crate::trainer::Position;
use crate::{CheckpointProblem, Ema, EmaConfig, Error, OptimizerState, ParameterState, Result};

const VERSION: u32 = 1;
/// How the names of the tensors begin that hooks keep.
const REMEMBERED_PREFIX: &str = "__tallow__.remembered.";
/// Where the file's metadata holds the JSON text, and its CRC-32.
const TEXT_KEY: &str = "tallow";
const CHECKSUM_KEY: &str = "tallow.crc32";

/// What a checkpoint file holds.
pub(super) struct Checkpoint {
    /// Parameters and buffers by name; when read, also the optimizer's, by their reserved names.
    pub(super) tensors: IndexMap<String, Tensor>,
    pub(super) optimizer: OptimizerState,
    /// Averaged weights by name.
    pub(super) ema: IndexMap<String, Tensor>,
    pub(super) metadata: Metadata,
    /// What hooks keep, by name.
    pub(super) remembered: BTreeMap<String, Tensor>,
}

/// What is not a tensor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Metadata {
    pub(super) training: Position,
    pub(super) rng: rng::State,
    pub(super) frozen: Vec<String>,
    pub(super) optimizer: OptimizerMetadata,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ema: Option<EmaMetadata>,
    /// What hooks keep.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) remembered: BTreeMap<String, Value>,
}

/// The numbers of averaged weights.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EmaMetadata {
    config: EmaConfig,
    updates: u64,
}

/// How far a training is; these change together with everything else in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stand {
    pub(crate) steps: u64,
    pub(crate) epochs: u64,
}

/// The numbers of an [`OptimizerState`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OptimizerMetadata {
    algorithm: String,
    settings: BTreeMap<String, f64>,
    /// Updates done, by parameter.
    steps: BTreeMap<String, u64>,
}

/// The JSON text in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    version: u32,
    /// CRC-32 of every tensor: its type, its shape and its bytes.
    tensors: BTreeMap<String, u32>,
    #[serde(flatten)]
    metadata: Metadata,
}

/// The only part of the document that every version has.
#[derive(Deserialize)]
struct AnyVersion {
    version: u32,
}

impl Checkpoint {
    /// Replaces the file at `path` as a whole.
    pub(super) fn write(mut self, path: &Path) -> Result<()> {
        for (parameter, state) in &self.optimizer.parameters {
            for (slot, tensor) in &state.tensors {
                let name = optimizer_tensor_name(slot, parameter);
                self.tensors.insert(name, tensor.clone());
            }
        }
        for (name, tensor) in &self.ema {
            let name = format!("{RESERVED_PREFIX}{EMA}{name}");
            self.tensors.insert(name, tensor.clone());
        }
        for (name, tensor) in std::mem::take(&mut self.remembered) {
            self.tensors
                .insert(format!("{REMEMBERED_PREFIX}{name}"), tensor);
        }
        let checksums = self.tensors.iter();
        let document = Document {
            version: VERSION,
            tensors: checksums
                .map(|(name, t)| (name.clone(), checksum(t)))
                .collect(),
            metadata: self.metadata,
        };
        let text = serde_json::to_string(&document).map_err(|error| {
            let message = error.to_string();
            Error::checkpoint(path, CheckpointProblem::Metadata(message))
        })?;
        let metadata = [
            (CHECKSUM_KEY.to_string(), text_checksum(&text)),
            (TEXT_KEY.to_string(), text),
        ];
        let tensors = self
            .tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor));
        write_tensors(path, tensors, &metadata.into())?;
        Ok(())
    }

    /// Reads and checks the whole of a file.
    pub(super) fn read(path: &Path, device: &Device) -> Result<Self> {
        let file = TensorFile::open(path)?;
        let refuse = |problem| Error::checkpoint(path, problem);
        let document = Document::open(file.metadata()).map_err(refuse)?;

        let mut tensors = IndexMap::new();
        for name in file.names() {
            let tensor = file.read(name)?;
            if document.tensors.get(name) != Some(&checksum(&tensor)) {
                return Err(refuse(CheckpointProblem::Damaged { name: name.into() }));
            }
            tensors.insert(name.to_string(), tensor.to_device(device)?);
        }
        if let Some(name) = document
            .tensors
            .keys()
            .find(|&name| !tensors.contains_key(name))
        {
            return Err(refuse(CheckpointProblem::Damaged { name: name.clone() }));
        }
        let optimizer = document.metadata.optimizer.with_tensors(&tensors);
        let ema = tensors.iter().filter_map(|(name, tensor)| {
            let name = name.strip_prefix(RESERVED_PREFIX)?.strip_prefix(EMA)?;
            Some((name.to_string(), tensor.clone()))
        });
        let ema = ema.collect();
        let remembered = tensors.iter().filter_map(|(name, tensor)| {
            let name = name.strip_prefix(REMEMBERED_PREFIX)?;
            Some((name.to_string(), tensor.clone()))
        });
        let remembered = remembered.collect();
        Ok(Self {
            tensors,
            optimizer,
            ema,
            metadata: document.metadata,
            remembered,
        })
    }

    /// Finished epochs and steps of the training in a file, of which only the header is read.
    pub(super) fn stand(path: &Path) -> Result<Stand> {
        let file = TensorFile::open(path)?;
        let document = Document::open(file.metadata());
        let training = document.map_err(|problem| Error::checkpoint(path, problem))?;
        let training = training.metadata.training;
        Ok(Stand {
            steps: training.step,
            epochs: training.history.epochs.len() as u64,
        })
    }
}

/// What the names of averaged weights go on with after the reserved prefix.
const EMA: &str = "ema.";

impl EmaMetadata {
    pub(super) fn of(ema: &Ema) -> Self {
        Self {
            config: ema.config(),
            updates: ema.updates(),
        }
    }

    pub(super) fn with_tensors(&self, tensors: &IndexMap<String, Tensor>) -> Result<Ema> {
        Ema::of(self.config, self.updates, tensors.iter())
    }
}

fn optimizer_tensor_name(slot: &str, parameter: &str) -> String {
    format!("{RESERVED_PREFIX}optimizer.{slot}.{parameter}")
}

/// Slot and parameter of an optimizer's tensor.
fn optimizer_tensor(name: &str) -> Option<(&str, &str)> {
    let rest = name
        .strip_prefix(RESERVED_PREFIX)?
        .strip_prefix("optimizer.")?;
    rest.split_once('.')
}

impl OptimizerMetadata {
    pub(super) fn of(state: &OptimizerState) -> Self {
        let steps = state.parameters.iter();
        Self {
            algorithm: state.algorithm.clone(),
            settings: state.settings.clone(),
            steps: steps
                .map(|(name, state)| (name.clone(), state.step))
                .collect(),
        }
    }

    /// The state, with its tensors picked out of those of a file.
    fn with_tensors(&self, tensors: &IndexMap<String, Tensor>) -> OptimizerState {
        let mut parameters: BTreeMap<String, ParameterState> = BTreeMap::new();
        for (name, &step) in &self.steps {
            parameters.entry(name.clone()).or_default().step = step;
        }
        for (name, tensor) in tensors {
            if let Some((slot, parameter)) = optimizer_tensor(name) {
                let state = parameters.entry(parameter.to_string()).or_default();
                state.tensors.insert(slot.to_string(), tensor.clone());
            }
        }
        OptimizerState {
            algorithm: self.algorithm.clone(),
            settings: self.settings.clone(),
            parameters,
        }
    }
}

impl Document {
    fn open(metadata: &FileMetadata) -> Result<Self, CheckpointProblem> {
        let text = metadata.get(TEXT_KEY);
        let text = text.ok_or(CheckpointProblem::NoTraining)?;
        if metadata.get(CHECKSUM_KEY) != Some(&text_checksum(text)) {
            let message = "its checksum does not fit".to_string();
            return Err(CheckpointProblem::Metadata(message));
        }
        let unreadable = |e: serde_json::Error| CheckpointProblem::Metadata(e.to_string());
        let AnyVersion { version } = serde_json::from_str(text).map_err(unreadable)?;
        if version > VERSION {
            return Err(CheckpointProblem::Version {
                found: version,
                supported: VERSION,
            });
        }
        serde_json::from_str(text).map_err(unreadable)
    }
}

fn text_checksum(text: &str) -> String {
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}

fn checksum(tensor: &Tensor) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(format!("{} {:?}", tensor.dtype().as_str(), tensor.dims()).as_bytes());
    crc.update(&View::data(tensor));
    crc.finalize()
}
