//! Computes operations on constants once, here.

use tallow_graph::op::{Constant, Literal};
use tallow_graph::{Graph, GraphError, Node, Op, TensorType};

use crate::interpret;
use crate::rewrite::Rewrite;

/// Larger results are left to the step: a plan shouldn't carry what an `expand` makes.
const MOST_ELEMENTS: u64 = 1 << 16;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    let mut literals: Vec<Option<Literal>> = vec![None; graph.nodes.len()];
    Rewrite::apply(graph, |rewrite, node| {
        if let Op::Constant(constant) = &node.op {
            literals[node.id.0] = Some(constant.value.clone());
            return Ok(false);
        }
        let Some(value) = fold(node, &literals) else {
            return Ok(false);
        };
        literals[node.id.0] = Some(value.clone());
        let id = rewrite.push(Op::Constant(Constant { value }), &[], &node.scope)?;
        rewrite.replace(node, id);
        Ok(true)
    })
}

/// The value of a node all of whose inputs are known, if the interpreter can tell.
fn fold(node: &Node, literals: &[Option<Literal>]) -> Option<Literal> {
    let random = matches!(node.op, Op::Dropout(_) | Op::DropPath(_));
    if node.inputs.is_empty() || random || node.output.elements() > MOST_ELEMENTS {
        return None;
    }
    let inputs: Option<Vec<&Literal>> = node
        .inputs
        .iter()
        .map(|id| literals[id.0].as_ref())
        .collect();
    let tensors: Vec<_> = inputs?
        .into_iter()
        .map(interpret::tensor)
        .collect::<Result<_, _>>()
        .ok()?;
    let tensor = interpret::evaluate(&node.op, &tensors).ok()?;
    let ty: TensorType = node.output.clone();
    interpret::literal(&tensor, ty).ok()
}
