//! Training: where a value is read twice, the second gradient is added to the first as a convolution writes it.

use tallow_graph::op::Grad;
use tallow_graph::{Graph, GraphError, Node, NodeId, Op};

use crate::rewrite::Rewrite;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    Rewrite::apply(graph, |rewrite, node| {
        let reader = rewrite.only_reader(node.id);
        if reader.is_some_and(|reader| joined(rewrite, reader) == Some(node.id)) {
            return Ok(true);
        }
        let Some(joined) = joined(rewrite, node) else {
            return Ok(false);
        };
        let gradient = rewrite.old(joined);
        let other = if node.inputs[0] == joined { 1 } else { 0 };
        let mut inputs = rewrite.mapped(&gradient.inputs);
        inputs.push(rewrite.get(node.inputs[other]));
        let op = match &gradient.op {
            Op::Grad(grad) => Op::Grad(Grad {
                add: true,
                ..grad.clone()
            }),
            other => other.clone(),
        };
        let id = rewrite.push(op, &inputs, &gradient.scope)?;
        rewrite.replace(node, id);
        Ok(true)
    })
}

/// Which input of an addition is a convolution's gradient that can take in the other one; the later, if both are.
fn joined(rewrite: &Rewrite<'_>, node: &Node) -> Option<NodeId> {
    let (Op::Add, &[a, b]) = (&node.op, node.inputs.as_slice()) else {
        return None;
    };
    if rewrite.old(a).output != rewrite.old(b).output {
        return None;
    }
    let suits = |id: NodeId| {
        let ours = rewrite.only_reader(id).is_some();
        let op = &rewrite.old(id).op;
        let gradient = matches!(op, Op::Grad(Grad { of, wrt: 0, add: false, .. }) if matches!(**of, Op::Conv2d(_)));
        ours && gradient
    };
    [a.max(b), a.min(b)].into_iter().find(|&id| suits(id))
}
