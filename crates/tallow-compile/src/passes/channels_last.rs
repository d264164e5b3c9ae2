//! Decides which images lie channels last, and converts between orders where they meet.
//!
//! Convolutions, batch norms and pools work channels last; elementwise operations follow what they read; everything
//! else works in the order of the dimensions. Parameters, inputs and outputs of the graph stay as they are.

use tallow_graph::op::{Grad, Layout, Relayout};
use tallow_graph::{Graph, GraphError, Node, NodeId, Op, TensorType};

use crate::rewrite::Rewrite;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    let mut pass = Assign {
        layouts: Vec::new(),
        converted: Vec::new(),
        rewrite: Rewrite::new(graph),
    };
    for node in &graph.nodes {
        pass.node(node)?;
    }
    pass.outputs(graph)
}

/// How an operation wants the images that it reads, and gives its own.
enum Wants {
    /// Those of these inputs channels last; gives one that is, or none at all.
    ChannelsLast(&'static [usize]),
    /// All alike, in any order.
    Alike,
    /// All in the order of the dimensions.
    Contiguous,
}

fn wants(node: &Node, types: &[TensorType]) -> Wants {
    match &node.op {
        Op::Conv2d(_) => Wants::ChannelsLast(&[0]),
        Op::QuantizeToWords(_) => Wants::ChannelsLast(&[0]),
        Op::Int8Conv2d(op) if op.residual.is_some() && op.bias => Wants::ChannelsLast(&[0, 3]),
        Op::Int8Conv2d(op) if op.residual.is_some() => Wants::ChannelsLast(&[0, 2]),
        Op::Int8Conv2d(_) => Wants::ChannelsLast(&[0]),
        Op::FakeQuantize(op) if op.scales.len() == 1 => Wants::Alike,
        Op::FusedConv2d(op) if op.residual && op.bias => Wants::ChannelsLast(&[0, 3]),
        Op::FusedConv2d(op) if op.residual => Wants::ChannelsLast(&[0, 2]),
        Op::FusedConv2d(_) => Wants::ChannelsLast(&[0]),
        Op::BatchNorm(_) | Op::BatchStats(_) if types[0].rank() == 4 => Wants::ChannelsLast(&[0]),
        Op::Normalize(_) if types[0].rank() == 4 => Wants::ChannelsLast(&[0, 4]),
        Op::NormalizeSums(_) if types[0].rank() == 4 => Wants::ChannelsLast(&[0, 1, 3]),
        Op::NormalizeBackward(_) if types[0].rank() == 4 => Wants::ChannelsLast(&[0, 1, 5]),
        Op::MaxPool2d(_)
        | Op::AvgPool2d(_)
        | Op::AdaptiveAvgPool2d(_)
        | Op::AdaptiveMaxPool2d(_) => Wants::ChannelsLast(&[0]),
        Op::Grad(grad) => wants_of_gradient(grad),
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Pointwise(_) if alike(&node.output, types) => {
            Wants::Alike
        }
        Op::AddScalar(_) | Op::MulScalar(_) | Op::DropPath(_) | Op::RoundBf16 => Wants::Alike,
        Op::Relu | Op::Relu6 | Op::Gelu(_) | Op::Silu | Op::Sigmoid | Op::Tanh | Op::Hardswish => {
            Wants::Alike
        }
        _ => Wants::Contiguous,
    }
}

fn wants_of_gradient(grad: &Grad) -> Wants {
    match (&*grad.of, grad.wrt) {
        (Op::Conv2d(_), 0) => Wants::ChannelsLast(&[0, 2]),
        (Op::Conv2d(_), 1) => Wants::ChannelsLast(&[0, 1]),
        (
            Op::MaxPool2d(_)
            | Op::AvgPool2d(_)
            | Op::AdaptiveAvgPool2d(_)
            | Op::AdaptiveMaxPool2d(_),
            _,
        ) => Wants::ChannelsLast(&[0, 1]),
        (
            Op::Relu | Op::Relu6 | Op::Gelu(_) | Op::Silu | Op::Sigmoid | Op::Tanh | Op::Hardswish,
            _,
        ) => Wants::Alike,
        _ => Wants::Contiguous,
    }
}

/// Whether inputs have the output's shape, or a single element.
fn alike(output: &TensorType, types: &[TensorType]) -> bool {
    types
        .iter()
        .all(|ty| ty.shape == output.shape || ty.elements() == 1)
}

/// Whether both orders are the same: one channel, or one position.
fn orders_agree(ty: &TensorType) -> bool {
    match ty.shape.as_slice() {
        &[_, channels, height, width] => channels == 1 || height * width == 1,
        _ => true,
    }
}

struct Assign<'g> {
    rewrite: Rewrite<'g>,
    /// The order of each old node.
    layouts: Vec<Layout>,
    /// Conversions that are there already.
    converted: Vec<(NodeId, Layout, NodeId)>,
}

impl Assign<'_> {
    fn node(&mut self, node: &Node) -> Result<(), GraphError> {
        let types: Vec<_> = node
            .inputs
            .iter()
            .map(|&id| self.rewrite.old(id).output.clone())
            .collect();
        let (order, inputs): (Layout, &[usize]) = match wants(node, &types) {
            Wants::ChannelsLast(inputs) => (Layout::ChannelsLast, inputs),
            Wants::Contiguous => (Layout::Contiguous, &[0, 1, 2, 3, 4, 5, 6, 7]),
            Wants::Alike => (self.common(node), &[0, 1, 2, 3, 4, 5, 6, 7]),
        };
        let mut mapped = self.rewrite.mapped(&node.inputs);
        for (index, &input) in node.inputs.iter().enumerate() {
            let wanted = if inputs.contains(&index) || index > 7 {
                order
            } else {
                Layout::Contiguous
            };
            mapped[index] = self.convert(input, wanted)?;
        }
        let id = self.rewrite.push(node.op.clone(), &mapped, &node.scope)?;
        self.rewrite.replace(node, id);
        let is_weight =
            matches!(&node.op, Op::Grad(Grad { of, wrt: 1, .. }) if matches!(**of, Op::Conv2d(_)));
        let image = node.output.rank() == 4 && !is_weight;
        self.layouts
            .push(if image { order } else { Layout::Contiguous });
        Ok(())
    }

    /// Channels last if any image among the inputs is.
    fn common(&self, node: &Node) -> Layout {
        let any = node.inputs.iter().any(|&id| self.is_channels_last(id));
        if any {
            Layout::ChannelsLast
        } else {
            Layout::Contiguous
        }
    }

    fn is_channels_last(&self, id: NodeId) -> bool {
        self.layouts[id.0] == Layout::ChannelsLast && !orders_agree(&self.rewrite.old(id).output)
    }

    /// The new node that stands for an old one, in the order that is wanted.
    fn convert(&mut self, old: NodeId, to: Layout) -> Result<NodeId, GraphError> {
        let node = self.rewrite.old(old);
        if self.layouts[old.0] == to || orders_agree(&node.output) {
            return Ok(self.rewrite.get(old));
        }
        let known = self
            .converted
            .iter()
            .find(|(from, order, _)| (*from, *order) == (old, to));
        if let Some(&(_, _, id)) = known {
            return Ok(id);
        }
        let value = self.rewrite.get(old);
        let id = self
            .rewrite
            .push(Op::Relayout(Relayout { to }), &[value], &node.scope)?;
        self.converted.push((old, to, id));
        Ok(id)
    }

    fn outputs(mut self, graph: &Graph) -> Result<Graph, GraphError> {
        let mut outputs = Vec::new();
        for &output in &graph.outputs {
            outputs.push(self.convert(output, Layout::Contiguous)?);
        }
        let mut new = self.rewrite.finish()?;
        new.outputs = outputs;
        Ok(new)
    }
}
