//! Computes once what is computed twice: the same operation on the same values.

use std::collections::HashMap;

use tallow_graph::{Graph, GraphError, NodeId, Op};

use crate::rewrite::Rewrite;

/// Operations that are alike but for their attributes, and what stands for each.
type Known<'g> = HashMap<(&'g str, Vec<NodeId>), Vec<(&'g Op, NodeId)>>;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    // Attributes hold floats, which can't be hashed; operations of one name on the same values are few.
    let mut known = Known::new();
    Rewrite::apply(graph, |rewrite, node| {
        if matches!(node.op, Op::Input(_) | Op::Param(_)) {
            return Ok(false);
        }
        let key = (node.op.name(), rewrite.mapped(&node.inputs));
        let alike = known.entry(key).or_default();
        if let Some(&(_, first)) = alike.iter().find(|(op, _)| *op == &node.op) {
            rewrite.replace(node, first);
            return Ok(true);
        }
        let id = rewrite.keep(node)?;
        alike.push((&node.op, id));
        Ok(true)
    })
}
