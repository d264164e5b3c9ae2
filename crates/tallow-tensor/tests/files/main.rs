//! Parameter files: what is written, what fits, and what damage does.

use std::path::PathBuf;

use candle_core::{DType, Device, Tensor};
use candle_nn::Init;
use tallow_tensor::{Params, params};
use tempfile::TempDir;

mod damage;
mod fit;
mod packages;
mod torch;
mod unfinished;

pub(crate) type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

const NORMAL: Init = Init::Randn {
    mean: 0.0,
    stdev: 1.0,
};

/// `fc.weight` `[2, 3]`, `fc.bias` `[2]`, and the buffer `bn.running_mean` `[2]`.
pub(crate) fn model(seed: u64, dtype: DType) -> candle_core::Result<Params> {
    let params = Params::new(seed, dtype, &Device::Cpu);
    let vb = params.builder();
    vb.pp("fc").get_with_hints((2, 3), "weight", NORMAL)?;
    vb.pp("fc").get_with_hints(2, "bias", NORMAL)?;
    params::buffer(&vb.pp("bn"), 2, "running_mean", seed as f64)?;
    Ok(params)
}

/// All values, converted to f64.
pub(crate) fn values(params: &Params) -> candle_core::Result<Vec<(String, Vec<f64>)>> {
    let entries = params.iter();
    let value = |t: &Tensor| t.flatten_all()?.to_dtype(DType::F64)?.to_vec1();
    entries
        .map(|entry| Ok((entry.name, value(entry.var.as_tensor())?)))
        .collect()
}

pub(crate) struct Folder(pub(crate) TempDir);

impl Folder {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("model.safetensors")
    }

    pub(crate) fn files(&self) -> std::io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.0.path())?;
        entries
            .map(|e| Ok(e?.file_name().to_string_lossy().into_owned()))
            .collect()
    }
}

pub(crate) fn message<T>(result: tallow_tensor::Result<T>) -> String {
    result.err().map(|e| e.to_string()).unwrap_or_default()
}
