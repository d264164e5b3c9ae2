//! Post-training quantization: a program whose convolutions compute with whole numbers of eight bits.

mod calibrate;
mod fold;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use candle_core::Tensor;
use tallow_graph::op::{FakeQuantize, Quantized};
use tallow_graph::{Graph, Node, NodeId, Op};

use crate::weights::{Elements, Weights};
use crate::{Error, Program, Result, rules};

/// Quantizes a program's convolutions to unsigned 8-bit activations with one scale each, and signed 8-bit weights with a
/// scale for each output channel (PyTorch's `torch.ao.quantization` after training, ONNX Runtime's `quantize_static`).
///
/// Batch normalisation is folded into convolutions first. Then `calibration`, batches like those that the program will
/// see, runs through the program in floats, and shows what range each input of a convolution has; a hundred images are
/// enough as a rule. The quantized program says where values are rounded ([`FakeQuantize`]): compiled, convolutions between
/// roundings are computed in whole numbers, and an ONNX file has `QuantizeLinear` and `DequantizeLinear` there. Everything
/// else stays in floats.
///
/// Range is all that eight bits have: networks with ReLU6, as the weights of small ranges, lose the least.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use tallow_compile::Options;
/// use tallow_export::{QuantizeOptions, freeze, quantize};
/// # let params = tallow_tensor::Params::f32_cpu();
/// # let model = tallow_nn::LeNet5::new(10, params.builder())?;
///
/// let images = Tensor::rand(0f32, 1., (4, 1, 28, 28), &Device::Cpu)?;
/// let program = freeze(&model, &images)?;
/// let quantized = quantize(&program, &[images.clone()], &QuantizeOptions::default())?;
/// assert_eq!(quantized.layers.len(), 2);
/// let logits = quantized.program.compile(Options::default())?.forward(&images)?;
/// assert_eq!(logits.dims(), [4, 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Unsupported`] without calibration data, for data that isn't finite, and where there is no convolution to
/// quantize; [`Error::Arguments`] for batches that the program isn't made for.
pub fn quantize(
    program: &Program,
    calibration: &[Tensor],
    options: &QuantizeOptions,
) -> Result<Quantization> {
    let mut weights = program.weights.clone();
    let mut folding = fold::Folding::default();
    let graphs = program.graphs.iter();
    let graphs: Vec<Graph> = graphs
        .map(|graph| folding.run(graph, &mut weights))
        .collect::<Result<_>>()?;
    let folded = Program { graphs, weights };
    let ranges = calibrate::ranges(&folded, calibration, options)?;
    let mut done = Quantization::default();
    for graph in &folded.graphs {
        let mut rounding = Rounding::new(graph, &folded.weights, &ranges, options);
        rounding.run()?;
        done.program.graphs.push(rules::prune(&rounding.graph)?);
        // Layers are those of every graph: they differ in the batch size alone.
        done.layers = rounding.layers;
        done.in_floats = rounding.in_floats;
    }
    if done.layers.is_empty() {
        return Err(Error::unsupported(
            "the program",
            "has no convolution that can be quantized",
            "quantize networks of convolutions, and keep fewer modules in floats",
        ));
    }
    for (_, param) in done.program.graphs.iter().flat_map(Graph::params) {
        if let (false, Some(elements)) = (
            done.program.weights.contains(&param.name),
            folded.weights.get(&param.name),
        ) {
            let (name, ty) = (param.name.clone(), param.ty.clone());
            done.program.weights.insert(name, ty, elements.clone());
        }
    }
    rules::check(&done.program.graphs, &done.program.weights)?;
    Ok(done)
}

/// What is quantized, and how ranges are found.
#[derive(Debug, Clone, Default)]
pub struct QuantizeOptions {
    calibration: Calibration,
    keep: Vec<String>,
}

/// Which range of values a tensor is given the numbers for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Calibration {
    /// From the least to the largest value in all batches.
    #[default]
    MinMax,
    /// Without outliers: so many percent of each batch's values lie inside, the mean of all batches. 99.99 is common.
    Percentile(f64),
}

impl QuantizeOptions {
    /// Minimum and maximum, every convolution.
    pub fn new() -> Self {
        Self::default()
    }

    /// How ranges are found.
    #[must_use]
    pub fn calibration(mut self, calibration: Calibration) -> Self {
        self.calibration = calibration;
        self
    }

    /// Leaves the convolutions of these modules in floats, by path: `layer1` means `layer1.0.conv1` too. The first
    /// convolution is often worth it.
    #[must_use]
    pub fn keep(mut self, modules: &[&str]) -> Self {
        self.keep = modules.iter().map(ToString::to_string).collect();
        self
    }

    fn keeps(&self, scope: &str) -> bool {
        let inside = |module: &String| {
            scope
                .strip_prefix(module.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.keep.iter().any(inside)
    }
}

/// A quantized program, and what became of its convolutions.
#[derive(Debug, Clone, Default)]
pub struct Quantization {
    /// The program.
    pub program: Program,
    /// The convolutions that compute with whole numbers, in order.
    pub layers: Vec<QuantizedLayer>,
    /// The modules of those that don't.
    pub in_floats: Vec<String>,
}

/// A quantized convolution.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantizedLayer {
    /// The path of its module.
    pub module: String,
    /// The numbers of its input.
    pub input: Quantized,
    /// The largest scale of its weights, and the smallest.
    pub weight_scales: [f32; 2],
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.layers.len();
        writeln!(
            f,
            "{layers} convolutions in int8, {} in f32",
            self.in_floats.len()
        )?;
        for QuantizedLayer {
            module,
            input,
            weight_scales: [most, least],
        } in &self.layers
        {
            let Quantized { scale, zero_point } = input;
            writeln!(
                f,
                "  {module:32} input {scale:.3e} * (q - {zero_point}), weights {least:.1e} to {most:.1e}"
            )?;
        }
        self.in_floats
            .iter()
            .try_for_each(|module| writeln!(f, "  {module:32} f32"))
    }
}

/// The reads of a graph that are rounded: of a convolution's input, and of what is added to its output.
fn sites<'g>(
    graph: &'g Graph,
    options: &'g QuantizeOptions,
) -> impl Iterator<Item = (&'g Node, usize)> {
    let readers = readers(graph);
    graph.nodes.iter().filter_map(move |node| match &node.op {
        Op::Conv2d(_) if suits(graph, node, options) => Some((node, 0)),
        Op::Add => {
            let [a, b] = <[NodeId; 2]>::try_from(node.inputs.as_slice()).ok()?;
            // The compiler adds the earlier value on the way, where the later one is a convolution's.
            let later = graph.node(a.max(b))?;
            let joins = matches!(later.op, Op::Conv2d(_))
                && suits(graph, later, options)
                && readers[later.id.0] == 1
                && a != b
                && graph.node(a)?.output == graph.node(b)?.output;
            joins.then_some((node, usize::from(b < a)))
        }
        _ => None,
    })
}

/// How often each node is read, by nodes and as an output.
fn readers(graph: &Graph) -> Vec<usize> {
    let mut readers = vec![0; graph.nodes.len()];
    let reads = graph.nodes.iter().flat_map(|node| &node.inputs);
    for id in reads.chain(&graph.outputs) {
        readers[id.0] += 1;
    }
    readers
}

/// Whether a convolution can be computed in whole numbers, and should be.
fn suits(graph: &Graph, node: &Node, options: &QuantizeOptions) -> bool {
    let (Op::Conv2d(op), [x, weight, ..]) = (&node.op, node.inputs.as_slice()) else {
        return false;
    };
    let (Some(x), Some(weight)) = (graph.node(*x), graph.node(*weight)) else {
        return false;
    };
    let even = weight
        .output
        .shape
        .get(1)
        .is_some_and(|channels| channels.is_multiple_of(2));
    matches!(weight.op, Op::Param(_))
        && x.output.rank() == 4
        && (op.groups == 1 || even)
        && !options.keeps(&node.scope)
}

/// A graph on its way to one that rounds.
struct Rounding<'a> {
    old: &'a Graph,
    weights: &'a Weights,
    ranges: &'a BTreeMap<NodeId, Quantized>,
    options: &'a QuantizeOptions,
    graph: Graph,
    places: Vec<NodeId>,
    /// The rounding of each old node.
    rounded: HashMap<NodeId, NodeId>,
    layers: Vec<QuantizedLayer>,
    in_floats: Vec<String>,
}

impl<'a> Rounding<'a> {
    fn new(
        old: &'a Graph,
        weights: &'a Weights,
        ranges: &'a BTreeMap<NodeId, Quantized>,
        options: &'a QuantizeOptions,
    ) -> Self {
        Self {
            old,
            weights,
            ranges,
            options,
            graph: Graph::default(),
            places: Vec::with_capacity(old.nodes.len()),
            rounded: HashMap::new(),
            layers: Vec::new(),
            in_floats: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<()> {
        let sites: HashMap<NodeId, usize> = sites(self.old, self.options)
            .map(|(node, place)| (node.id, place))
            .collect();
        for node in &self.old.nodes {
            let mut inputs: Vec<NodeId> = node.inputs.iter().map(|id| self.places[id.0]).collect();
            if let Some(&place) = sites.get(&node.id) {
                inputs[place] = self.activations(node.inputs[place], &node.scope)?;
                if matches!(node.op, Op::Conv2d(_)) {
                    inputs[1] = self.weight(node)?;
                }
            } else if matches!(node.op, Op::Conv2d(_)) {
                self.in_floats.push(node.scope.clone());
            }
            let id = self
                .graph
                .push(node.op.clone(), &inputs, node.scope.clone())?;
            self.places.push(id);
        }
        self.graph.outputs = self
            .old
            .outputs
            .iter()
            .map(|id| self.places[id.0])
            .collect();
        Ok(())
    }

    fn activations(&mut self, old: NodeId, scope: &str) -> Result<NodeId> {
        if let Some(&rounded) = self.rounded.get(&old) {
            return Ok(rounded);
        }
        let op = FakeQuantize::activations(self.ranges[&old]);
        let id = self
            .graph
            .push(Op::FakeQuantize(op), &[self.places[old.0]], scope)?;
        self.rounded.insert(old, id);
        Ok(id)
    }

    fn weight(&mut self, node: &Node) -> Result<NodeId> {
        let weight = node.inputs[1];
        let scales = match self.old.node(weight).map(|weight| &weight.op) {
            Some(Op::Param(param)) => {
                weight_scales(self.weights.get(&param.name), param.ty.shape[0])
            }
            _ => Vec::new(),
        };
        let largest = scales.iter().copied().fold(0.0, f32::max);
        self.layers.push(QuantizedLayer {
            module: node.scope.clone(),
            input: self.ranges[&node.inputs[0]],
            weight_scales: [largest, scales.iter().copied().fold(largest, f32::min)],
        });
        let op = Op::FakeQuantize(FakeQuantize::weights(scales));
        Ok(self
            .graph
            .push(op, &[self.places[weight.0]], node.scope.clone())?)
    }
}

/// For each filter the scale at which its largest weight is 127.
fn weight_scales(weight: Option<&Elements>, filters: usize) -> Vec<f32> {
    let values = weight.map_or(&[][..], |weight| weight.as_ref());
    let filter = (values.len() / filters.max(1)).max(1);
    let scale = |filter: &[f32]| {
        let most = filter.iter().fold(0f32, |most, w| most.max(w.abs()));
        if most > 0.0 {
            (most / 127.0).max(f32::MIN_POSITIVE)
        } else {
            1.0
        }
    };
    values.chunks(filter).map(scale).collect()
}
