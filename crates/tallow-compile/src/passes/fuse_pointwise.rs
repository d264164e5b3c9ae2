//! Joins elementwise operations in a row: what lies between them stays in the cache and is never stored.

use std::cmp::Reverse;

use tallow_graph::op::{Grad, Pointwise, PointwiseStep, PointwiseValue};
use tallow_graph::{Graph, GraphError, Node, NodeId, Op};

use crate::rewrite::Rewrite;

/// Most operations that are joined in a row.
const MOST: usize = 16;
/// Most operations that stand behind one operand of a joined one. Two operands of that size, the larger one computed first, need
/// no more results at a time than a program can hold.
const MOST_BEHIND: usize = 32;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    Rewrite::apply(graph, |rewrite, node| {
        if !is_elementwise(rewrite, node) {
            return Ok(false);
        }
        if joined_size(rewrite, node.id) > 0 {
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

/// How many operations are computed where `id` is, itself included, if its one reader computes it on the way; else 0.
fn joined_size(rewrite: &Rewrite<'_>, id: NodeId) -> usize {
    let node = rewrite.old(id);
    let Some(reader) = rewrite.only_reader(id) else {
        return 0;
    };
    let fits = is_elementwise(rewrite, node)
        && reader.output == node.output
        && is_elementwise(rewrite, reader)
        && depth(rewrite, reader) < MOST;
    if !fits {
        return 0;
    }
    let inputs = node.inputs.iter().map(|&id| joined_size(rewrite, id));
    match 1 + inputs.sum::<usize>() {
        size if size <= MOST_BEHIND => size,
        _ => 0,
    }
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
        let sizes = node.inputs.iter().map(|&id| joined_size(rewrite, id));
        let mut order: Vec<(usize, usize)> = sizes.enumerate().collect();
        // The largest first: its result is all that is kept while the others are computed.
        order.sort_by_key(|&(_, size)| Reverse(size));
        let mut reads = vec![PointwiseValue::Input(0); node.inputs.len()];
        for (place, size) in order {
            let id = node.inputs[place];
            reads[place] = match size {
                0 => self.input(id),
                _ => self.add(rewrite, rewrite.old(id)),
            };
        }
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
