//! [`Manifest`]: what an operator needs to know of a delivered model, as JSON; `docs/manifest.md` is its schema.
//!
//! Every item is needed: one that is missing or impossible is an error when the manifest is written, and when it is read.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tallow_graph::{DType, TensorType};
use tallow_tensor::params::write_atomically;

use crate::{Error, Result};

mod check;
mod machine;

pub use machine::{Build, Machine};

/// The manifest's file in a delivery.
pub const MANIFEST: &str = "manifest.json";
/// The checksums of all files of a delivery but itself, as `sha256sum` writes them.
pub const SUMS: &str = "SHA256SUMS";
/// The version of the schema.
pub const VERSION: u32 = 1;

/// What an operator needs to know of a delivered model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the schema, [`VERSION`].
    pub manifest_version: u32,
    /// 1. Which model it is.
    pub model: Identity,
    /// 2. What it was built with.
    pub build: Build,
    /// 3. The delivered files, this one and the checksums left out.
    pub files: Vec<DeliveredFile>,
    /// 4. The formats of the files.
    pub format: Format,
    /// 5. What goes in and what comes out, for the first batch size.
    pub interface: Interface,
    /// 6. What is done to an input before it goes in.
    pub normalisation: Normalisation,
    /// 7. The names of the classes, in the order of the output's last dimension.
    pub classes: Vec<String>,
    /// 8. How it was compiled, and to what.
    pub compile: Compile,
    /// 9. The machine it was made and measured on.
    pub machine: Machine,
    /// 10. What it was trained on, and how well it does.
    pub training: Training,
    /// 11. How long a run takes, for each batch size.
    pub latency: Vec<Latency>,
    /// 12. How far it is from the eager model, and a run to compare with.
    pub golden: Golden,
}

/// Which model it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// When it was delivered, in UTC, as RFC 3339 writes it.
    pub created: String,
}

/// One delivered file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveredFile {
    /// Its name in the folder.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal digits.
    pub sha256: String,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The program, which [`Program::load`](crate::Program::load) reads.
    Program,
    /// The same as an ONNX file.
    Onnx,
    /// The golden input and output.
    Golden,
    /// Something else that was put in.
    Other,
}

/// The formats of the files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Format {
    /// That of the program.
    pub program: String,
    /// The operator set of the ONNX file, if there is one.
    pub onnx_opset: Option<i64>,
}

/// What goes in and what comes out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// The inputs, in order.
    pub inputs: Vec<Value>,
    /// The outputs, in order.
    pub outputs: Vec<Value>,
    /// The sizes that the first dimension may have.
    pub batch_sizes: Vec<usize>,
}

/// One input or output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// Its name.
    pub name: String,
    /// Its sizes, outermost first.
    pub shape: Vec<usize>,
    /// The type of its elements.
    pub dtype: DType,
}

impl Value {
    pub(crate) fn new(name: impl Into<String>, ty: TensorType) -> Self {
        Self {
            name: name.into(),
            shape: ty.shape,
            dtype: ty.dtype,
        }
    }
}

/// What is done to an input before it goes in: `(value / scale - mean) / std`, a channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalisation {
    /// What stored values are divided by first; 255 for pixels in bytes.
    pub scale: f32,
    /// The mean of each channel, or one for all.
    pub mean: Vec<f32>,
    /// The standard deviation of each channel, or one for all.
    pub std: Vec<f32>,
}

/// How it was compiled, and to what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compile {
    /// The options, by name.
    pub options: BTreeMap<String, String>,
    /// Kernel calls of all plans; at least 1.
    pub kernels: usize,
    /// Modules that run eagerly; 0.
    pub fallbacks: u64,
    /// Bytes of the values of all plans.
    pub planned_memory: u64,
}

/// What it was trained on, and how well it does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// The seed of the run.
    pub seed: u64,
    /// The data set: name, version, which part.
    pub dataset: String,
    /// Metrics by name, such as `test_accuracy`.
    pub metrics: BTreeMap<String, f64>,
}

/// How long a run takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// The batch size.
    pub batch: usize,
    /// Half of the runs took no longer, in milliseconds.
    pub median_ms: f64,
    /// 99 of 100 runs took no longer, in milliseconds.
    pub p99_ms: f64,
    /// What the median may be on the target machine, in milliseconds; none if that isn't to be checked.
    pub limit_ms: Option<f64>,
    /// How many runs were timed.
    pub runs: usize,
    /// How it was measured, in words.
    pub how: String,
}

/// How far it is from the eager model, and a run to compare with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Golden {
    /// The file with the tensors `input_0`, ... and `output_0`, ..., which are those of the eager model.
    pub file: String,
    /// The largest difference between program and eager model, where it was made.
    pub max_deviation: f64,
    /// The largest absolute value of the outputs, which the deviation is to be seen against.
    pub largest_output: f64,
    /// What the largest difference may be on the target machine.
    pub tolerance: f64,
}

impl Manifest {
    /// Writes `manifest.json` and `SHA256SUMS` into a folder that holds the files already.
    ///
    /// # Errors
    /// [`Error::Incomplete`] with every item that is missing or impossible, and nothing is written.
    pub fn write(&self, folder: impl AsRef<Path>) -> Result<()> {
        let faults = self.faults();
        if !faults.is_empty() {
            return Err(Error::Incomplete(faults));
        }
        let folder = folder.as_ref();
        let json = self.to_json()?;
        write_atomically(folder.join(MANIFEST), |file| {
            file.write_all(json.as_bytes())
        })?;
        let sums = self.sums(&crate::checksum::of_bytes(json.as_bytes()));
        write_atomically(folder.join(SUMS), |file| file.write_all(sums.as_bytes()))?;
        Ok(())
    }

    /// Reads the manifest of a delivery.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] for one that is damaged, lacks an item or is of another version.
    pub fn read(folder: impl AsRef<Path>) -> Result<Self> {
        let path = folder.as_ref().join(MANIFEST);
        let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let corrupt = |problem: String| Error::Corrupt {
            path: path.clone(),
            problem,
            remedy: "fetch the delivery again",
        };
        let manifest: Self =
            serde_json::from_str(&text).map_err(|error| corrupt(error.to_string()))?;
        let faults = manifest.faults();
        match faults.is_empty() {
            true => Ok(manifest),
            false => Err(corrupt(faults.join("; "))),
        }
    }

    pub(crate) fn to_json(&self) -> Result<String> {
        let json = serde_json::to_string_pretty(self).map_err(|error| {
            let remedy = "give finite numbers";
            Error::unsupported("the manifest", error.to_string(), remedy)
        })?;
        Ok(json + "\n")
    }

    /// The text of `SHA256SUMS`, given the manifest's own checksum.
    pub(crate) fn sums(&self, own: &str) -> String {
        let files = self.files.iter();
        let mut lines: Vec<String> = files
            .map(|file| format!("{}  {}\n", file.sha256, file.name))
            .collect();
        lines.push(format!("{own}  {MANIFEST}\n"));
        lines.concat()
    }

    /// The delivered file of a role.
    pub fn file(&self, role: Role) -> Option<&DeliveredFile> {
        self.files.iter().find(|file| file.role == role)
    }
}
