//! The table people know from Keras and torchinfo: layers, output shapes, parameters, multiply-adds.
//!
//! It is read off a captured graph, so it shows what the model does, not what its structs hold.

use std::collections::HashSet;
use std::fmt;

use candle_core::{DType, Device, Tensor};
use candle_nn::ModuleT;
use tallow_tensor::graph::op::ParamKind;
use tallow_tensor::graph::{Graph, Node, NodeId, Op, TensorType};
use tallow_tensor::{Params, Result, capture_model};

/// Operations that follow each other in one module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The module's path, such as `layer1.0.conv1`; empty at the root.
    pub path: String,
    /// The operations' names, in order, each once; those that only move data are left out beside others.
    pub operations: Vec<&'static str>,
    /// Shape of the last one's output.
    pub output: Vec<usize>,
    /// Parameter elements that no earlier row reads, buffers not counted.
    pub params: u64,
    /// Multiply-adds of convolutions, matrix products and attention, for the whole batch.
    pub macs: u64,
}

/// What [`summary`] found; `Display` prints the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The rows, in the order in which they run.
    pub rows: Vec<Row>,
    /// Shape of the input.
    pub input: Vec<usize>,
    /// Parameter elements, frozen ones included.
    pub params: u64,
    /// Parameter elements that an optimizer changes.
    pub trainable: u64,
    /// Buffer elements (running statistics).
    pub buffers: u64,
    /// Multiply-adds for the whole batch.
    pub macs: u64,
    /// Bytes of the parameters.
    pub param_bytes: u64,
    /// Bytes of all operations' outputs together: what a forward pass keeps for training.
    pub activation_bytes: u64,
}

/// Runs `model` once in evaluation on zeros of this shape (f32, on the CPU) and describes it.
///
/// # Errors
/// The model's own, if it cannot take the shape; a graph break, if it uses operations that are not
/// `tallow_tensor::ops`.
///
/// ```
/// use tallow_nn::{LeNet5, summary};
/// use tallow_tensor::Params;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let params = Params::f32_cpu();
/// let model = LeNet5::new(10, params.builder())?;
/// let table = summary(&model, &[1, 1, 28, 28])?;
/// assert_eq!(table.params, 61_706);
/// println!("{table}");
/// # Ok(()) }
/// ```
pub fn summary(model: &impl ModuleT, shape: &[usize]) -> Result<Summary> {
    summary_of(
        model,
        &Tensor::zeros(shape, DType::F32, &Device::Cpu)?,
        None,
    )
}

/// As [`summary`], for an input of another type or device. With the model's `params`, frozen parameters are told from
/// trainable ones.
///
/// # Errors
/// As [`summary`].
pub fn summary_of(
    model: &impl ModuleT,
    example: &Tensor,
    params: Option<&Params>,
) -> Result<Summary> {
    Ok(Summary::of(&capture_model(model, example, false, params)?))
}

impl Summary {
    /// Describes a captured graph.
    pub fn of(graph: &Graph) -> Self {
        let buffers = buffers(graph);
        let input = graph.inputs.first().and_then(|&id| graph.node(id));
        let mut summary = Self {
            rows: rows(graph, &buffers),
            input: input
                .map(|node| node.output.shape.clone())
                .unwrap_or_default(),
            params: 0,
            trainable: 0,
            buffers: 0,
            macs: graph.macs(),
            param_bytes: 0,
            activation_bytes: operations(graph).map(|node| node.output.bytes()).sum(),
        };
        for (node, param) in graph.params() {
            let elements = param.ty.elements();
            if buffers.contains(&node.id) {
                summary.buffers += elements;
                continue;
            }
            summary.params += elements;
            summary.param_bytes += param.ty.bytes();
            if param.kind == ParamKind::Trainable {
                summary.trainable += elements;
            }
        }
        summary
    }
}

fn operations(graph: &Graph) -> impl Iterator<Item = &Node> {
    let sources = |op: &Op| matches!(op, Op::Input(_) | Op::Param(_) | Op::Constant(_));
    graph.nodes.iter().filter(move |node| !sources(&node.op))
}

/// Buffers by their kind and, since a capture without `Params` does not know kinds, by the role they are read in.
fn buffers(graph: &Graph) -> HashSet<NodeId> {
    let by_kind = graph
        .params()
        .filter(|(_, param)| param.kind == ParamKind::Buffer)
        .map(|(node, _)| node.id);
    let by_role = operations(graph).flat_map(|node| {
        let inputs = node.inputs.iter().enumerate();
        inputs
            .filter(|(index, _)| node.op.input_role(*index).starts_with("running_"))
            .map(|(_, &id)| id)
    });
    by_kind.chain(by_role).collect()
}

fn rows(graph: &Graph, buffers: &HashSet<NodeId>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut seen = buffers.clone();
    for node in operations(graph) {
        let (params, macs) = (new_params(graph, node, &mut seen), macs(graph, node));
        match rows.last_mut() {
            Some(row) if row.path == node.scope => row.extend(node, params, macs),
            _ => rows.push(Row::start(node, params, macs)),
        }
    }
    rows.iter_mut().for_each(Row::drop_moves);
    rows
}

impl Row {
    fn start(node: &Node, params: u64, macs: u64) -> Self {
        let operations = vec![node.op.name()];
        Self {
            path: node.scope.clone(),
            operations,
            output: node.output.shape.clone(),
            params,
            macs,
        }
    }

    fn extend(&mut self, node: &Node, params: u64, macs: u64) {
        let name = node.op.name();
        if !self.operations.contains(&name) {
            self.operations.push(name);
        }
        self.output.clone_from(&node.output.shape);
        self.params += params;
        self.macs += macs;
    }

    fn drop_moves(&mut self) {
        if !self.operations.iter().all(|name| is_move(name)) {
            self.operations.retain(|name| !is_move(name));
        }
    }

    fn label(&self) -> String {
        let operations = self.operations.join(", ");
        if self.path.is_empty() {
            format!("({operations})")
        } else {
            format!("{} ({operations})", self.path)
        }
    }
}

fn is_move(name: &str) -> bool {
    matches!(name, "reshape" | "permute" | "slice" | "concat" | "expand")
}

/// Parameter elements that this node is the first to read; `seen` starts with the buffers.
fn new_params(graph: &Graph, node: &Node, seen: &mut HashSet<NodeId>) -> u64 {
    let inputs = node.inputs.iter().filter_map(|&id| graph.node(id));
    inputs
        .filter_map(|input| match &input.op {
            Op::Param(param) if seen.insert(input.id) => Some(param.ty.elements()),
            _ => None,
        })
        .sum()
}

fn macs(graph: &Graph, node: &Node) -> u64 {
    let inputs = node.inputs.iter().filter_map(|&id| graph.node(id));
    let types: Vec<TensorType> = inputs.map(|input| input.output.clone()).collect();
    node.op.macs(&types, &node.output)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["Layer (operations)", "Output shape", "Parameters", "MACs"].map(String::from);
        let body = self.rows.iter().map(|row| {
            [
                row.label(),
                format!("{:?}", row.output),
                thousands_or_dash(row.params),
                thousands_or_dash(row.macs),
            ]
        });
        let lines: Vec<[String; 4]> = std::iter::once(header).chain(body).collect();
        let width = |column: usize| {
            lines
                .iter()
                .map(|line| line[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2), width(3)];
        let rule = "─".repeat(widths.iter().sum::<usize>() + 6);
        for (index, [label, output, params, macs]) in lines.iter().enumerate() {
            if index == 1 {
                writeln!(f, "{rule}")?;
            }
            let [a, b, c, d] = widths;
            writeln!(f, "{label:<a$}  {output:<b$}  {params:>c$}  {macs:>d$}")?;
        }
        writeln!(f, "{rule}")?;
        let parameters = thousands(self.params);
        let (trainable, buffers) = (thousands(self.trainable), thousands(self.buffers));
        writeln!(
            f,
            "Parameters: {parameters} ({trainable} trainable), and {buffers} in buffers"
        )?;
        writeln!(
            f,
            "Multiply-adds: {} for {:?}",
            thousands(self.macs),
            self.input
        )?;
        let (params, activations) = (
            mebibytes(self.param_bytes),
            mebibytes(self.activation_bytes),
        );
        write!(
            f,
            "Memory: parameters {params} MiB, outputs of all layers {activations} MiB"
        )
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / (1 << 20) as f64)
}

fn thousands_or_dash(number: u64) -> String {
    if number == 0 {
        "-".into()
    } else {
        thousands(number)
    }
}

/// `1234567` as `1,234,567`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
