//! Leaves out what no output depends on. Inputs stay, for they are the signature.

use tallow_graph::{Graph, GraphError, Op};

use crate::rewrite::Rewrite;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    let mut live = vec![false; graph.nodes.len()];
    for output in &graph.outputs {
        live[output.0] = true;
    }
    for node in graph.nodes.iter().rev() {
        if live[node.id.0] {
            node.inputs.iter().for_each(|input| live[input.0] = true);
        }
    }
    Rewrite::apply(graph, |_, node| {
        Ok(!live[node.id.0] && !matches!(node.op, Op::Input(_)))
    })
}
