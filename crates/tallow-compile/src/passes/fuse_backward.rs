//! Training: lets the gradient of a norm read through the activation behind it, instead of storing the gradient that
//! the activation lets through.
//!
//! Only where nobody else wants that gradient; a residual does.

use tallow_graph::op::{Clamp, Grad, NormalizeBackward, NormalizeSums};
use tallow_graph::{Graph, GraphError, Node, NodeId, Op};

use crate::rewrite::Rewrite;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    Rewrite::apply(graph, |rewrite, node| {
        if fusible(rewrite, node).is_some() {
            return Ok(true);
        }
        let dy = match &node.op {
            Op::NormalizeSums(_) | Op::NormalizeBackward(_) => rewrite.old(node.inputs[0]),
            _ => return Ok(false),
        };
        let Some(clamp) = fusible(rewrite, dy) else {
            return Ok(false);
        };
        let mut inputs = rewrite.mapped(&node.inputs);
        inputs[0] = rewrite.get(dy.inputs[0]);
        inputs.push(rewrite.get(dy.inputs[1]));
        let op = behind(&node.op, clamp);
        let id = rewrite.push(op, &inputs, &node.scope)?;
        rewrite.replace(node, id);
        Ok(true)
    })
}

/// The activation whose gradient the node is, if only norms read it.
fn fusible(rewrite: &Rewrite<'_>, node: &Node) -> Option<Clamp> {
    let clamp = match &node.op {
        Op::Grad(Grad { of, add: false, .. }) => match **of {
            Op::Relu => Clamp::Relu,
            Op::Relu6 => Clamp::Relu6,
            _ => return None,
        },
        _ => return None,
    };
    let readers = rewrite.readers(node.id);
    let all = !readers.is_empty()
        && readers
            .iter()
            .all(|&id| reads_as_dy(rewrite.old(id), node.id));
    (all && !rewrite.is_output(node.id)).then_some(clamp)
}

fn reads_as_dy(reader: &Node, value: NodeId) -> bool {
    let plain = match &reader.op {
        Op::NormalizeSums(op) => op.activation.is_none(),
        Op::NormalizeBackward(op) => op.activation.is_none(),
        _ => false,
    };
    plain && reader.inputs[0] == value && !reader.inputs[1..].contains(&value)
}

/// The operation with the activation in it.
fn behind(op: &Op, clamp: Clamp) -> Op {
    let activation = Some(clamp);
    match op {
        Op::NormalizeSums(op) => Op::NormalizeSums(NormalizeSums {
            activation,
            ..op.clone()
        }),
        Op::NormalizeBackward(op) => Op::NormalizeBackward(NormalizeBackward {
            activation,
            ..op.clone()
        }),
        other => other.clone(),
    }
}
