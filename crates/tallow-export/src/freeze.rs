//! From a model to a [`Program`]: its inference, captured, with its weights as they are now.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use candle_core::{DType, Tensor};
use candle_nn::ModuleT;
use tallow_graph::op::{Literal, Param, ParamKind};
use tallow_graph::{Graph, Op};
use tallow_tensor::{Capture, Captured, Params, inplace};

use crate::weights::{Elements, Weights};
use crate::{Error, Program, Result, rules};

/// Constants of more elements than this become weights, so that the graph stays readable.
const LARGE_CONSTANT: u64 = 256;

/// Freezes a model's inference on batches like `example` (`torch.export` of a model in evaluation mode).
///
/// Weights are named by the path of their module and their role, as in `layer1.0.conv1.weight`;
/// [`FreezeOptions::params`] takes the names that the model's [`Params`] have, for weights that no layer owns as well.
///
/// # Errors
/// Graph breaks, named each; [`Error::NotInference`] for a model that trains whatever it is told; weights that aren't f32.
pub fn freeze<M: ModuleT>(model: &M, example: &Tensor) -> Result<Program> {
    FreezeOptions::new().freeze(model, example)
}

/// How a model is frozen.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use tallow_export::FreezeOptions;
/// use tallow_nn::LeNet5;
/// use tallow_tensor::Params;
///
/// let params = Params::f32_cpu();
/// let model = LeNet5::new(10, params.builder())?;
/// let image = Tensor::zeros((1, 1, 28, 28), DType::F32, &Device::Cpu)?;
/// let program = FreezeOptions::new()
///     .params(&params)
///     .batch_sizes(&[1, 8])
///     .freeze(&model, &image)?;
/// assert_eq!(program.batch_sizes(), [1, 8]);
/// assert_eq!(program.weight_names().collect::<Vec<_>>(), params.names());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct FreezeOptions<'a> {
    params: Option<&'a Params>,
    batch_sizes: Vec<usize>,
    input: Option<String>,
}

impl<'a> FreezeOptions<'a> {
    /// The batch size of the example, an input named `x`, names by module path.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the names of weights from here.
    #[must_use]
    pub fn params(mut self, params: &'a Params) -> Self {
        self.params = Some(params);
        self
    }

    /// The sizes that the first dimension may have, instead of the example's. Each becomes a graph of its own; they share
    /// the weights.
    #[must_use]
    pub fn batch_sizes(mut self, sizes: &[usize]) -> Self {
        self.batch_sizes = sizes.to_vec();
        self
    }

    /// The input's name; `x` otherwise.
    #[must_use]
    pub fn input_name(mut self, name: impl Into<String>) -> Self {
        self.input = Some(name.into());
        self
    }

    /// Freezes a model; see [`freeze`](crate::freeze()).
    ///
    /// # Errors
    /// As [`freeze`](crate::freeze()).
    pub fn freeze<M: ModuleT>(&self, model: &M, example: &Tensor) -> Result<Program> {
        let mut program = Program::default();
        let mut constants = Constants::default();
        for batch in self.batches(example)? {
            let captured = self.capture(model, &batch)?;
            verify_inference_mode(&captured.graph)?;
            let tensors: HashMap<&str, &Tensor> = captured
                .params
                .iter()
                .map(|(name, tensor)| (name.as_str(), tensor))
                .collect();
            let graph = rules::prune(&captured.graph)?;
            for (node, param) in graph.params() {
                if !program.weights.contains(&param.name) {
                    let tensor = tensors.get(param.name.as_str()).copied();
                    let elements = elements(&param.name, tensor)?;
                    program
                        .weights
                        .insert(param.name.clone(), node.output.clone(), elements);
                }
            }
            program
                .graphs
                .push(constants.lift(&graph, &mut program.weights)?);
        }
        self.order(&mut program);
        rules::check(&program.graphs, &program.weights)?;
        Ok(program)
    }

    fn capture<M: ModuleT>(&self, model: &M, batch: &Tensor) -> Result<Captured> {
        let name = self.input.as_deref().unwrap_or("x");
        let mut capture = Capture::new().input(name, batch);
        if let Some(params) = self.params {
            capture = capture.params(params);
        }
        Ok(capture.run_with_params(|inputs| Ok(vec![model.forward_t(&inputs[0], false)?]))?)
    }

    /// The example in every batch size.
    pub(crate) fn batches(&self, example: &Tensor) -> Result<Vec<Tensor>> {
        if self.batch_sizes.is_empty() {
            return Ok(vec![example.clone()]);
        }
        let unique: HashSet<_> = self.batch_sizes.iter().collect();
        let found = example.dims().first().copied().unwrap_or(0);
        if self.batch_sizes.contains(&0) || unique.len() < self.batch_sizes.len() || found == 0 {
            return Err(Error::unsupported(
                format!("batch sizes {:?}", self.batch_sizes),
                format!("can't be made of an example of shape {:?}", example.dims()),
                "give different sizes of at least 1, and an example with at least one sample",
            ));
        }
        let batch = |&size: &usize| {
            let rows: Vec<u32> = (0..size).map(|row| (row % found) as u32).collect();
            let rows = Tensor::new(rows, example.device())?;
            Ok(example.index_select(&rows, 0)?)
        };
        self.batch_sizes.iter().map(batch).collect()
    }

    /// Weights in the order that the model's parameters have.
    fn order(&self, program: &mut Program) {
        if let Some(params) = self.params {
            let names = params.names();
            let place = |name: &str| names.iter().position(|known| known == name);
            program
                .weights
                .sort_by_key(|name| place(name).unwrap_or(usize::MAX));
        }
    }
}

/// The elements of a parameter as they are now.
fn elements(name: &str, tensor: Option<&Tensor>) -> Result<Elements> {
    let wrong = |found: String| {
        Error::unsupported(
            format!("weight `{name}`"),
            found,
            "freeze models of contiguous f32 parameters on the CPU; convert this one first",
        )
    };
    let tensor = tensor.ok_or_else(|| wrong("isn't known to the model".into()))?;
    if !inplace::is_supported(tensor) {
        let place = tensor.device().location();
        return Err(wrong(format!("is {:?} on {place:?}", tensor.dtype())));
    }
    debug_assert_eq!(tensor.dtype(), DType::F32);
    let copy = inplace::read_all(std::slice::from_ref(tensor), |slices| {
        slices.first().map(|slice| Arc::from(*slice))
    })?;
    Ok(Elements::Owned(copy.unwrap_or_default()))
}

/// Large constants, which become weights, each once.
#[derive(Default)]
pub(crate) struct Constants {
    known: Vec<(Literal, String)>,
}

impl Constants {
    /// The graph with its large constants as parameters.
    pub(crate) fn lift(&mut self, graph: &Graph, weights: &mut Weights) -> Result<Graph> {
        let mut lifted = graph.clone();
        let mut here = HashSet::new();
        for node in &mut lifted.nodes {
            let Op::Constant(constant) = &node.op else {
                continue;
            };
            let ty = constant.value.ty.clone();
            if ty.elements() <= LARGE_CONSTANT || ty.dtype != tallow_graph::DType::F32 {
                continue;
            }
            let name = self.name(&constant.value, weights);
            // A graph has each parameter once; a second use stays a constant.
            if !here.insert(name.clone()) {
                continue;
            }
            node.op = Op::Param(Param {
                name,
                ty,
                kind: ParamKind::Frozen,
            });
        }
        Ok(lifted)
    }

    fn name(&mut self, literal: &Literal, weights: &mut Weights) -> String {
        if let Some((_, name)) = self.known.iter().find(|(known, _)| known == literal) {
            return name.clone();
        }
        let free = (0..)
            .map(|n| format!("constants.{n}"))
            .find(|name| !weights.contains(name));
        let name = free.unwrap_or_default();
        let floats = literal.bytes.as_chunks::<4>().0.iter();
        let floats = floats.map(|bytes| f32::from_le_bytes(*bytes)).collect();
        weights.insert(name.clone(), literal.ty.clone(), Elements::Owned(floats));
        self.known.push((literal.clone(), name.clone()));
        name
    }
}

/// An operation that has no place in inference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offender {
    /// The path of its module; empty at the root.
    pub module: String,
    /// The operation.
    pub operation: &'static str,
    /// Why it has no place there, and what to do.
    pub problem: &'static str,
}

impl fmt::Display for Offender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let module = match self.module.as_str() {
            "" => "the root module",
            module => module,
        };
        write!(f, "{module}: {} {}", self.operation, self.problem)
    }
}

/// Proves that a graph is inference alone: no dropout, no statistics of the batch, no gradients, nothing unknown.
///
/// # Errors
/// [`Error::NotInference`] with every offender and the path of its module.
pub fn verify_inference_mode(graph: &Graph) -> Result<()> {
    let offenders = graph.nodes.iter().filter_map(|node| {
        Some(Offender {
            module: node.scope.clone(),
            operation: node.op.name(),
            problem: rules::training(&node.op)?,
        })
    });
    let offenders: Vec<Offender> = offenders.collect();
    match offenders.is_empty() {
        true => Ok(()),
        false => Err(Error::NotInference(offenders)),
    }
}

/// Proves that a model's inference is inference alone: captures `forward_t(example, false)`, and as
/// [`verify_inference_mode`]. Parameters and running statistics are as before afterwards.
///
/// # Errors
/// As [`verify_inference_mode`], and graph breaks.
pub fn verify_model<M: ModuleT>(model: &M, example: &Tensor) -> Result<()> {
    verify_inference_mode(&FreezeOptions::new().capture(model, example)?.graph)
}
