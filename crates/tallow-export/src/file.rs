//! The program's file: safetensors, the graphs as JSON among the metadata.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tallow_graph::{DType, Graph, TensorType};
use tallow_tensor::convert;
use tallow_tensor::params::{Metadata, TensorFile, write_tensors};

use crate::mapping::Mapping;
use crate::weights::{Elements, Weights};
use crate::{Error, Program, Result, numbers, rules};

/// The metadata key of the graphs.
const KEY: &str = "tallow.program";
/// The version of what stands there.
const VERSION: u32 = 1;
/// What Python's tools ask for before they load a file; names and layout are PyTorch's.
const FORMAT: (&str, &str) = ("format", "pt");

/// What the metadata holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    graphs: Vec<Graph>,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

pub(crate) fn save(program: &Program, path: &Path) -> Result<()> {
    let stored = Stored {
        version: VERSION,
        graphs: program.graphs.clone(),
    };
    let json = serde_json::to_string(&stored).map_err(|error| {
        Error::unsupported("the graph", error.to_string(), "this is a fault of Tallow")
    })?;
    let (key, value) = FORMAT;
    let metadata = Metadata::from([(KEY.into(), json), (key.into(), value.into())]);
    let mut tensors = program.weights.tensors()?;
    for (name, tensor) in &mut tensors {
        if let Some(op) = numbers::rounding(&program.graphs, name) {
            *tensor = numbers::encode(op, tensor)?;
        }
    }
    let named = tensors.iter().map(|(name, tensor)| (*name, tensor));
    Ok(write_tensors(path, named, &metadata)?)
}

pub(crate) fn load(path: &Path) -> Result<Program> {
    let corrupt = |problem: String, remedy| Error::Corrupt {
        path: path.to_path_buf(),
        problem,
        remedy,
    };
    let file = TensorFile::open(path)?;
    let Some(json) = file.metadata().get(KEY) else {
        return Err(corrupt(
            format!("holds tensors, but no program (no `{KEY}` in its metadata)"),
            "freeze the model and save the program",
        ));
    };
    let damaged = |error: serde_json::Error| {
        corrupt(
            format!("its graph can't be read ({error})"),
            "fetch or save it again",
        )
    };
    let Version { version } = serde_json::from_str(json).map_err(damaged)?;
    if version != VERSION {
        return Err(corrupt(
            format!("its graph has version {version}, this is version {VERSION}"),
            "save it with this version of Tallow, or load it with the one that saved it",
        ));
    }
    let stored: Stored = serde_json::from_str(json).map_err(damaged)?;
    let program = Program {
        weights: map(&file, &stored.graphs)?,
        graphs: stored.graphs,
    };
    rules::check(&program.graphs, &program.weights)?;
    Ok(program)
}

/// The weights that the graphs name, as parts of the mapped file.
fn map(file: &TensorFile, graphs: &[Graph]) -> Result<Weights> {
    let mapping = Mapping::new(file.file(), file.path())?;
    let mut weights = Weights::default();
    let used: std::collections::HashSet<&str> = graphs
        .iter()
        .flat_map(Graph::params)
        .map(|(_, param)| param.name.as_str())
        .collect();
    for name in file.names().filter(|name| used.contains(name)) {
        let (Some(dtype), Some(shape), Some(range)) =
            (file.dtype(name), file.shape(name), file.range(name))
        else {
            continue;
        };
        let ty = TensorType::new(convert::dtype(dtype)?, shape);
        let range = range.start as usize..range.end as usize;
        let rounding = numbers::rounding(graphs, name);
        match (ty.dtype, rounding) {
            (DType::F32, _) => {
                weights.insert(name.to_string(), ty, Elements::mapped(&mapping, range));
            }
            (DType::U8, Some(op)) => {
                let values = numbers::decode(op, mapping.bytes(&range), &ty.shape);
                let ty = TensorType::f32(ty.shape);
                weights.insert(name.to_string(), ty, Elements::Owned(values.into()));
            }
            _ => {}
        }
    }
    Ok(weights)
}
