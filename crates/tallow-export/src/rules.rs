//! What a program may consist of: the operations of inference, sizes that a machine can hold, weights that are there.
//!
//! These rules hold for what is frozen and for what is read from a file, where nothing can be taken for granted.

use tallow_graph::op::{AvgPool2d, Conv2d, MaxPool2d, Slice};
use tallow_graph::{DType, Graph, NodeId, Op, TensorType};

use crate::weights::Weights;
use crate::{Error, Result, verify_inference_mode};

/// Nodes of all graphs of a program together.
const MOST_NODES: usize = 1 << 16;
/// Graphs of a program.
const MOST_GRAPHS: usize = 64;
/// Bytes of one value.
const MOST_BYTES: u64 = 1 << 32;
/// Attributes of windows and steps.
const LARGEST_ATTRIBUTE: usize = 1 << 20;

/// Why an operation has no place in inference; `None` if it has.
pub(crate) fn training(op: &Op) -> Option<&'static str> {
    match op {
        Op::Dropout(_) | Op::DropPath(_) => {
            Some("drops at random; return the input unchanged where `train` is false")
        }
        Op::BatchNorm(norm) if norm.train => Some(
            "normalises by the statistics of the batch; hand `train` on, so that running statistics are used",
        ),
        Op::CrossEntropy(_) => Some("is a loss; freeze the model without it"),
        Op::Opaque(_) => {
            Some("runs Rust code that no file can hold; write the module with `tallow_tensor::ops`")
        }
        Op::Grad(_)
        | Op::BatchStats(_)
        | Op::NormalizeSums(_)
        | Op::NormalizeBackward(_)
        | Op::RunningStat(_) => Some("is part of a training step; freeze the model alone"),
        Op::RoundBf16
        | Op::QuantizeToWords(_)
        | Op::Int8Conv2d(_)
        | Op::Normalize(_)
        | Op::FoldBatchNorm(_)
        | Op::FusedConv2d(_)
        | Op::Pointwise(_)
        | Op::Relayout(_) => Some("is made by the compiler; freeze the captured graph"),
        Op::Input(_)
        | Op::Param(_)
        | Op::Constant(_)
        | Op::Conv2d(_)
        | Op::Linear
        | Op::MatMul
        | Op::Embedding
        | Op::Attention(_)
        | Op::Add
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::AddScalar(_)
        | Op::MulScalar(_)
        | Op::Relu
        | Op::Relu6
        | Op::Gelu(_)
        | Op::Silu
        | Op::Sigmoid
        | Op::Tanh
        | Op::Hardswish
        | Op::BatchNorm(_)
        | Op::LayerNorm(_)
        | Op::GroupNorm(_)
        | Op::MaxPool2d(_)
        | Op::AvgPool2d(_)
        | Op::AdaptiveAvgPool2d(_)
        | Op::AdaptiveMaxPool2d(_)
        | Op::Interpolate(_)
        | Op::Softmax(_)
        | Op::LogSoftmax(_)
        | Op::Concat(_)
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Slice(_)
        | Op::Expand(_)
        | Op::Mean(_)
        | Op::Sum(_)
        | Op::FakeQuantize(_) => None,
    }
}

/// Checks all rules.
pub(crate) fn check(graphs: &[Graph], weights: &Weights) -> Result<()> {
    let wrong = |problem: String| {
        Error::unsupported(
            "the program",
            problem,
            "save it again with this version of Tallow",
        )
    };
    if graphs.is_empty() || graphs.len() > MOST_GRAPHS {
        let problem = format!("has {} graphs, not 1 to {MOST_GRAPHS}", graphs.len());
        return Err(wrong(problem));
    }
    let nodes: usize = graphs.iter().map(|graph| graph.nodes.len()).sum();
    if nodes > MOST_NODES {
        return Err(wrong(format!("has {nodes} nodes, more than {MOST_NODES}")));
    }
    for graph in graphs {
        graph.nodes.iter().try_for_each(check_node)?;
        graph.verify()?;
        verify_inference_mode(graph)?;
        if graph.inputs.is_empty() {
            return Err(wrong("takes no input".into()));
        }
        check_weights(graph, weights)?;
    }
    check_signatures(graphs)
}

/// Sizes first: shape rules multiply them.
fn check_node(node: &tallow_graph::Node) -> Result<()> {
    let wrong = |problem: String| {
        let place = match node.scope.as_str() {
            "" => String::new(),
            scope => format!(" in module `{scope}`"),
        };
        Error::unsupported(
            format!("{}{place}", node.op.name()),
            problem,
            "give values that a machine can hold, with at least one element",
        )
    };
    let ty = &node.output;
    if !holds(ty) {
        return Err(wrong(format!("gives {ty}")));
    }
    if let Op::Input(tallow_graph::op::Input { ty, .. })
    | Op::Param(tallow_graph::op::Param { ty, .. }) = &node.op
        && !holds(ty)
    {
        return Err(wrong(format!("claims {ty}")));
    }
    let sane = |values: &[&[usize]]| {
        values
            .iter()
            .copied()
            .flatten()
            .all(|&v| v <= LARGEST_ATTRIBUTE)
    };
    let attributes = match &node.op {
        Op::Conv2d(Conv2d {
            stride,
            padding,
            dilation,
            ..
        }) => sane(&[stride, padding, dilation]),
        Op::MaxPool2d(MaxPool2d {
            kernel,
            stride,
            padding,
            ..
        })
        | Op::AvgPool2d(AvgPool2d {
            kernel,
            stride,
            padding,
            ..
        }) => sane(&[kernel, stride, padding]),
        Op::Slice(Slice { step, .. }) => sane(&[&[*step]]),
        _ => true,
    };
    match attributes {
        true => Ok(()),
        false => Err(wrong("has an attribute of absurd size".into())),
    }
}

/// Whether a machine can hold a value of this type, and it isn't empty.
pub(crate) fn holds(ty: &TensorType) -> bool {
    ty.shape.iter().all(|&size| size > 0) && ty.bytes() <= MOST_BYTES
}

fn check_weights(graph: &Graph, weights: &Weights) -> Result<()> {
    for (_, param) in graph.params() {
        let wrong = |problem: String| {
            Error::unsupported(
                format!("weight `{}`", param.name),
                problem,
                "a program has every weight of its graphs, in f32",
            )
        };
        if param.ty.dtype != DType::F32 {
            return Err(wrong(format!("is {}", param.ty)));
        }
        match weights.ty(&param.name) {
            Some(ty) if *ty == param.ty => {}
            Some(ty) => return Err(wrong(format!("is {ty}, the graph asks for {}", param.ty))),
            None => return Err(wrong("is not there".into())),
        }
    }
    Ok(())
}

/// The graphs of a program differ in the size of the first dimension of their inputs, and in nothing else that shows.
fn check_signatures(graphs: &[Graph]) -> Result<()> {
    let wrong = |problem: &str| {
        Error::unsupported(
            "the program",
            problem,
            "all graphs of a program are one model, for different batch sizes",
        )
    };
    let names = |graph: &Graph| -> Vec<String> {
        let inputs = graph.inputs.iter().filter_map(|id| graph.node(*id));
        let named = inputs.filter_map(|node| match &node.op {
            Op::Input(input) => Some(input.name.clone()),
            _ => None,
        });
        named.collect()
    };
    for (index, graph) in graphs.iter().enumerate() {
        if names(graph) != names(&graphs[0]) || graph.outputs.len() != graphs[0].outputs.len() {
            return Err(wrong("has graphs with other inputs or outputs"));
        }
        let same = |other: &&Graph| input_types(other) == input_types(graph);
        if graphs[..index].iter().any(|other| same(&other)) {
            return Err(wrong("has two graphs for the same inputs"));
        }
    }
    Ok(())
}

/// The types of a graph's inputs.
pub(crate) fn input_types(graph: &Graph) -> Vec<TensorType> {
    let nodes = graph.inputs.iter().filter_map(|id| graph.node(*id));
    nodes.map(|node| node.output.clone()).collect()
}

/// The graph without what none of its outputs needs; inputs stay.
pub(crate) fn prune(graph: &Graph) -> Result<Graph> {
    let mut needed = vec![false; graph.nodes.len()];
    for id in graph.outputs.iter().chain(&graph.inputs) {
        if let Some(needed) = needed.get_mut(id.0) {
            *needed = true;
        }
    }
    for node in graph.nodes.iter().rev() {
        if needed[node.id.0] {
            node.inputs.iter().for_each(|id| needed[id.0] = true);
        }
    }
    let mut pruned = Graph::default();
    let mut places: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        if !needed[node.id.0] {
            places.push(node.id);
            continue;
        }
        let inputs: Vec<NodeId> = node.inputs.iter().map(|id| places[id.0]).collect();
        places.push(pruned.push(node.op.clone(), &inputs, node.scope.clone())?);
    }
    pruned.inputs = graph.inputs.iter().map(|id| places[id.0]).collect();
    pruned.outputs = graph.outputs.iter().map(|id| places[id.0]).collect();
    Ok(pruned)
}
