//! Chains of an operation, the residual that is added to what it gives, and an activation: what two passes join.

use tallow_graph::op::Clamp;
use tallow_graph::{Graph, GraphError, Node, NodeId, Op};

use crate::rewrite::Rewrite;

/// An operation and what is joined with it so far.
#[derive(Clone, Copy)]
pub(super) struct Chain {
    root: NodeId,
    residual: Option<NodeId>,
    /// The activation behind, if there is one.
    pub(super) activation: Option<Clamp>,
}

impl Chain {
    pub(super) fn has_residual(&self) -> bool {
        self.residual.is_some()
    }
}

/// Joins the chains that begin with an operation for which `fused` gives something; it is handed the operation and
/// how many inputs it has, and gives the operation that takes the same inputs, then the residual.
pub(super) fn fuse(
    graph: &Graph,
    begins: impl Fn(&Op) -> bool,
    fused: impl Fn(&Op, usize, &Chain) -> Op,
) -> Result<Graph, GraphError> {
    let mut chains: Vec<Option<Chain>> = vec![None; graph.nodes.len()];
    let mut rewrite = Rewrite::new(graph);
    for node in &graph.nodes {
        let chain = if begins(&node.op) {
            Some(Chain {
                root: node.id,
                residual: None,
                activation: None,
            })
        } else {
            extend(&rewrite, &chains, node)
        };
        let Some(chain) = chain else {
            rewrite.keep(node)?;
            continue;
        };
        chains[node.id.0] = Some(chain);
        let goes_on = rewrite
            .only_reader(node.id)
            .is_some_and(|reader| extend(&rewrite, &chains, reader).is_some());
        if goes_on {
            continue;
        }
        let root = rewrite.old(chain.root);
        if root.id == node.id {
            rewrite.keep(root)?;
            continue;
        }
        let op = fused(&root.op, root.inputs.len(), &chain);
        let mut inputs = rewrite.mapped(&root.inputs);
        inputs.extend(chain.residual.map(|id| rewrite.get(id)));
        let id = rewrite.push(op, &inputs, &root.scope)?;
        rewrite.replace(node, id);
    }
    rewrite.finish()
}

/// The chain of one of the node's inputs, with the node in it.
fn extend(rewrite: &Rewrite<'_>, chains: &[Option<Chain>], node: &Node) -> Option<Chain> {
    let chain_of = |id: NodeId| {
        let chain = chains[id.0].filter(|chain| chain.activation.is_none());
        chain.filter(|_| {
            rewrite
                .only_reader(id)
                .is_some_and(|reader| reader.id == node.id)
        })
    };
    if let Some(activation) = clamp(&node.op) {
        let chain = chain_of(node.inputs[0])?;
        return Some(Chain {
            activation: Some(activation),
            ..chain
        });
    }
    let (Op::Add, &[a, b]) = (&node.op, node.inputs.as_slice()) else {
        return None;
    };
    if rewrite.old(a).output != rewrite.old(b).output {
        return None;
    }
    // The chain of the later one: the other is written by then. A rounding begins no chain, wherever it stands.
    let (earlier, later) = (a.min(b), a.max(b));
    let (main, residual) = match rewrite.old(later).op {
        Op::FakeQuantize(_) => (earlier, later),
        _ => (later, earlier),
    };
    let chain = chain_of(main).filter(|chain| chain.residual.is_none())?;
    Some(Chain {
        residual: Some(residual),
        ..chain
    })
}

/// The activation that an operation is, if it can be joined.
fn clamp(op: &Op) -> Option<Clamp> {
    match op {
        Op::Relu => Some(Clamp::Relu),
        Op::Relu6 => Some(Clamp::Relu6),
        _ => None,
    }
}
