//! A program as an ONNX file: its inputs, weights and constants; `operations.rs` has the operations.

use std::collections::HashSet;
use std::path::Path;

use prost::Message;
use tallow_graph::op::Literal;
use tallow_graph::{DType, Graph, Node, Op, TensorType};
use tallow_tensor::params::write_atomically;

use super::proto::{self, element, kind};
use super::refused;
use crate::weights::Weights;
use crate::{Error, Program, Result};

mod adaptive;
mod operations;
mod quantized;

/// The version of the operator set that is written.
pub const OPSET: i64 = 20;
/// The version of the file format that belongs to it.
const IR_VERSION: i64 = 9;
/// The largest message that readers of protocol buffers take.
const MOST_BYTES: usize = (1 << 31) - 1;

/// Writes a program as an ONNX file of operator set [`OPSET`], with static shapes and weights inside, atomically.
///
/// A program for several batch sizes is written for the first one; [`Program::for_batch`] picks another. Values keep the
/// names of inputs and weights; the output is named `output`, several are `output_0`, `output_1`, ...
///
/// ```
/// # use candle_core::{DType, Device, Tensor};
/// use tallow_export::{freeze, onnx};
/// # let params = tallow_tensor::Params::f32_cpu();
/// # let model = tallow_nn::LeNet5::new(10, params.builder())?;
/// # let image = Tensor::zeros((1, 1, 28, 28), DType::F32, &Device::Cpu)?;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.onnx");
///
/// onnx::write(&freeze(&model, &image)?, &path)?;
/// let again = onnx::read(&path, &[])?;
/// assert_eq!(again.inputs()[0].1.to_string(), "f32[1, 1, 28, 28]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Onnx`] for what ONNX has no operators for; [`Error::Tensor`] for what the system refuses, and `path` is then
/// as it was.
pub fn write(program: &Program, path: impl AsRef<Path>) -> Result<()> {
    let Some(graph) = program.graphs.first() else {
        return Err(refused("graph", "", "is empty", "freeze a model first"));
    };
    let model = proto::Model {
        ir_version: IR_VERSION,
        producer_name: "tallow".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        graph: Some(Writer::new(graph, &program.weights).write()?),
        opset_import: vec![proto::OperatorSet {
            domain: String::new(),
            version: OPSET,
        }],
        functions: Vec::new(),
    };
    if model.encoded_len() > MOST_BYTES {
        let problem = format!("would have {} bytes, more than 2 GB", model.encoded_len());
        let remedy = "deliver it as a program, whose file has no such limit";
        return Err(refused("file", "", problem, remedy));
    }
    let bytes = model.encode_to_vec();
    Ok(write_atomically(path, |file| file.write_all(&bytes))?)
}

/// The ONNX graph as it grows.
struct Writer<'a> {
    graph: &'a Graph,
    weights: &'a Weights,
    nodes: Vec<proto::Node>,
    initializers: Vec<proto::Tensor>,
    inputs: Vec<proto::ValueInfo>,
    /// The name of each node's value.
    values: Vec<String>,
    taken: HashSet<String>,
    /// What names of nodes begin with: the module, and the operation with its number.
    place: String,
}

impl<'a> Writer<'a> {
    fn new(graph: &'a Graph, weights: &'a Weights) -> Self {
        let outputs = (0..graph.outputs.len()).map(|index| output_name(graph, index));
        Self {
            graph,
            weights,
            nodes: Vec::new(),
            initializers: Vec::new(),
            inputs: Vec::new(),
            values: Vec::new(),
            taken: outputs.collect(),
            place: String::new(),
        }
    }

    fn write(mut self) -> Result<proto::Graph> {
        let graph = self.graph;
        for node in &graph.nodes {
            let value = match &node.op {
                Op::Input(input) => self.input(&input.name, &input.ty)?,
                // Its numbers are written with the rounding.
                Op::Param(_) if self.is_rounded_weight(node) => String::new(),
                Op::Param(param) => self.weight(&param.name, &param.ty),
                Op::Constant(constant) => self.constant(node, &constant.value)?,
                _ => {
                    self.place = match node.scope.as_str() {
                        "" => format!("{}_{}", node.op.name(), node.id.0),
                        scope => format!("{scope}/{}_{}", node.op.name(), node.id.0),
                    };
                    let inputs = node.inputs.iter().map(|id| self.values[id.0].clone());
                    let inputs: Vec<String> = inputs.collect();
                    self.operation(node, &inputs)?
                }
            };
            self.values.push(value);
        }
        let outputs = self.outputs()?;
        // Weights that stand in the file as whole numbers are not there as floats too.
        let nodes = self.nodes.iter().flat_map(|node| &node.input);
        let read: HashSet<&String> = nodes.collect();
        self.initializers
            .retain(|tensor| read.contains(&tensor.name));
        Ok(proto::Graph {
            node: self.nodes,
            name: "program".into(),
            initializer: self.initializers,
            input: self.inputs,
            output: outputs,
        })
    }

    /// A name that no other value has.
    fn unused(&mut self, name: &str) -> String {
        let numbered = (2..).map(|n| format!("{name}_{n}"));
        let mut names = std::iter::once(name.to_string()).chain(numbered);
        let free = names.find(|name| !self.taken.contains(name));
        let free = free.unwrap_or_default();
        self.taken.insert(free.clone());
        free
    }

    fn input(&mut self, name: &str, ty: &TensorType) -> Result<String> {
        let name = self.unused(name);
        self.inputs.push(value_info(&name, ty)?);
        Ok(name)
    }

    fn weight(&mut self, name: &str, ty: &TensorType) -> String {
        let elements = self.weights.get(name).map(|elements| elements.as_ref());
        let tensor = float_tensor(&ty.shape, elements.unwrap_or(&[]));
        self.initializer(name, tensor)
    }

    fn constant(&mut self, node: &Node, literal: &Literal) -> Result<String> {
        let tensor = proto::Tensor {
            dims: dims(&literal.ty.shape),
            data_type: element_type(literal.ty.dtype)?,
            raw_data: Some(literal.bytes.to_vec()),
            ..Default::default()
        };
        Ok(self.initializer(&format!("constant_{}", node.id.0), tensor))
    }

    fn initializer(&mut self, name: &str, tensor: proto::Tensor) -> String {
        let name = self.unused(name);
        self.initializers.push(proto::Tensor {
            name: name.clone(),
            ..tensor
        });
        name
    }

    /// One number.
    fn scalar(&mut self, value: f64) -> String {
        let name = format!("{}/value", self.place);
        self.initializer(&name, float_tensor(&[], &[value as f32]))
    }

    /// A matrix of floats, or of another shape.
    fn floats(&mut self, shape: &[usize], values: &[f32]) -> String {
        let name = format!("{}/values", self.place);
        self.initializer(&name, float_tensor(shape, values))
    }

    /// A list of integers: shapes, axes, ranges.
    fn ints(&mut self, values: &[usize]) -> String {
        let name = format!("{}/ints", self.place);
        let bytes = values.iter().flat_map(|&v| (v as i64).to_le_bytes());
        let tensor = proto::Tensor {
            dims: vec![values.len() as i64],
            data_type: element::INT64,
            raw_data: Some(bytes.collect()),
            ..Default::default()
        };
        self.initializer(&name, tensor)
    }

    /// Adds an operator and gives the name of its value.
    fn emit(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<proto::Attribute>,
    ) -> String {
        let name = self.unused(&format!("{}/{operator}", self.place));
        self.nodes.push(proto::Node {
            input: inputs.iter().map(ToString::to_string).collect(),
            output: vec![name.clone()],
            name: name.clone(),
            op_type: operator.to_string(),
            attribute: attributes,
            domain: String::new(),
        });
        name
    }

    /// Gives the outputs their names.
    fn outputs(&mut self) -> Result<Vec<proto::ValueInfo>> {
        let graph = self.graph;
        let mut infos = Vec::with_capacity(graph.outputs.len());
        for (index, id) in graph.outputs.iter().enumerate() {
            let (from, to) = (self.values[id.0].clone(), output_name(graph, index));
            let repeated = graph.outputs[..index].contains(id);
            let is_source = !self.nodes.iter().any(|node| node.output.contains(&from));
            if repeated || is_source {
                self.place = to.clone();
                let copy = self.emit("Identity", &[&from], Vec::new());
                self.rename(&copy, &to);
            } else {
                self.rename(&from, &to);
                self.values[id.0] = to.clone();
            }
            let ty = graph.node(*id).map(|node| node.output.clone());
            infos.push(value_info(&to, &ty.unwrap_or_else(|| TensorType::f32([])))?);
        }
        Ok(infos)
    }

    fn rename(&mut self, from: &str, to: &str) {
        let nodes = self.nodes.iter_mut();
        for name in nodes.flat_map(|node| node.input.iter_mut().chain(&mut node.output)) {
            if name == from {
                *name = to.to_string();
            }
        }
    }
}

fn output_name(graph: &Graph, index: usize) -> String {
    match graph.outputs.len() {
        1 => "output".into(),
        _ => format!("output_{index}"),
    }
}

fn dims(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|&size| size as i64).collect()
}

fn float_tensor(shape: &[usize], values: &[f32]) -> proto::Tensor {
    proto::Tensor {
        dims: dims(shape),
        data_type: element::FLOAT,
        raw_data: Some(values.iter().flat_map(|v| v.to_le_bytes()).collect()),
        ..Default::default()
    }
}

fn value_info(name: &str, ty: &TensorType) -> Result<proto::ValueInfo> {
    let dim = ty.shape.iter().map(|&size| proto::Dim {
        value: Some(size as i64),
        param: None,
    });
    Ok(proto::ValueInfo {
        name: name.to_string(),
        ty: Some(proto::Type {
            tensor: Some(proto::TensorType {
                elem_type: element_type(ty.dtype)?,
                shape: Some(proto::Shape { dim: dim.collect() }),
            }),
        }),
    })
}

fn element_type(dtype: DType) -> Result<i32> {
    match dtype {
        DType::F32 => Ok(element::FLOAT),
        DType::U8 => Ok(element::UINT8),
        DType::U32 => Ok(element::UINT32),
        DType::I64 => Ok(element::INT64),
        other => Err(Error::unsupported(
            "an ONNX file",
            format!("of {other} can't be written"),
            "convert the model to f32",
        )),
    }
}

fn int(name: &str, value: i64) -> proto::Attribute {
    proto::Attribute {
        name: name.into(),
        i: Some(value),
        kind: kind::INT,
        ..Default::default()
    }
}

fn ints<'v>(name: &str, values: impl IntoIterator<Item = &'v usize>) -> proto::Attribute {
    proto::Attribute {
        name: name.into(),
        ints: values.into_iter().map(|&v| v as i64).collect(),
        kind: kind::INTS,
        ..Default::default()
    }
}

fn float(name: &str, value: f64) -> proto::Attribute {
    proto::Attribute {
        name: name.into(),
        f: Some(value as f32),
        kind: kind::FLOAT,
        ..Default::default()
    }
}

fn string(name: &str, value: &str) -> proto::Attribute {
    proto::Attribute {
        name: name.into(),
        s: Some(value.as_bytes().to_vec()),
        kind: kind::STRING,
        ..Default::default()
    }
}
