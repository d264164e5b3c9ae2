//! Joins elementwise operations in a row: what lies between them stays in the cache and is never stored.

use tallow_graph::op::{Grad, Pointwise, PointwiseStep, PointwiseValue};
use tallow_graph::{Graph, GraphError, Node, NodeId, Op};

use crate::rewrite::Rewrite;

/// Most operations that are joined, and most values that they read.
const MOST: usize = 16;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    Rewrite::apply(graph, |rewrite, node| {
        if !is_elementwise(rewrite, node) {
            return Ok(false);
        }
        if is_joined(rewrite, node) {
            return Ok(true);
        }
        let mut tree = Tree::default();
        tree.add(rewrite, node);
        if tree.steps.len() < 2 {
            return Ok(false);
        }
        let inputs = rewrite.mapped(&tree.inputs);
        let op = Op::Pointwise(Pointwise { steps: tree.steps });
        let id = rewrite.push(op, &inputs, &node.scope)?;
        rewrite.replace(node, id);
        Ok(true)
    })
}

/// Whether each element of the result depends on the same element of the inputs, or on inputs of one element.
fn is_elementwise(rewrite: &Rewrite<'_>, node: &Node) -> bool {
    let arithmetic = match &node.op {
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::AddScalar(_) | Op::MulScalar(_) => true,
        Op::Grad(Grad { of, add: false, .. }) => is_activation(of),
        op => is_activation(op),
    };
    let fits = |&id: &NodeId| {
        let ty = &rewrite.old(id).output;
        ty.shape == node.output.shape || ty.elements() == 1
    };
    arithmetic && node.inputs.iter().all(fits)
}

fn is_activation(op: &Op) -> bool {
    matches!(
        op,
        Op::Relu | Op::Relu6 | Op::Gelu(_) | Op::Silu | Op::Sigmoid | Op::Tanh | Op::Hardswish
    )
}

/// Whether the one reader of a node computes it on the way.
fn is_joined(rewrite: &Rewrite<'_>, node: &Node) -> bool {
    let Some(reader) = rewrite.only_reader(node.id) else {
        return false;
    };
    reader.output == node.output && is_elementwise(rewrite, reader) && depth(rewrite, reader) < MOST
}

/// How many joined operations stand behind a node, itself included.
fn depth(rewrite: &Rewrite<'_>, node: &Node) -> usize {
    let mut depth = 1;
    let mut last = node;
    while let Some(reader) = rewrite.only_reader(last.id)
        && reader.output == last.output
        && is_elementwise(rewrite, reader)
        && depth < MOST
    {
        depth += 1;
        last = reader;
    }
    depth
}

/// Operations to be joined, innermost first, and the values that they read.
#[derive(Default)]
struct Tree {
    steps: Vec<PointwiseStep>,
    inputs: Vec<NodeId>,
}

impl Tree {
    fn add(&mut self, rewrite: &Rewrite<'_>, node: &Node) -> PointwiseValue {
        let reads = node.inputs.iter().map(|&id| {
            let input = rewrite.old(id);
            if is_elementwise(rewrite, input) && is_joined(rewrite, input) {
                self.add(rewrite, input)
            } else {
                self.input(id)
            }
        });
        let reads = reads.collect();
        self.steps.push(PointwiseStep {
            op: node.op.clone(),
            reads,
        });
        PointwiseValue::Step(self.steps.len() - 1)
    }

    fn input(&mut self, id: NodeId) -> PointwiseValue {
        let place = self.inputs.iter().position(|&known| known == id);
        PointwiseValue::Input(place.unwrap_or_else(|| {
            self.inputs.push(id);
            self.inputs.len() - 1
        }))
    }
}
