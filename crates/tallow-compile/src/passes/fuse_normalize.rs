//! Training: joins normalising with the residual that is added to it and the activation behind.

use tallow_graph::op::Normalize;
use tallow_graph::{Graph, GraphError, Op};

use super::chain;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    chain::fuse(
        graph,
        |op| matches!(op, Op::Normalize(norm) if !norm.residual && norm.activation.is_none()),
        |op, _, chain| match op {
            Op::Normalize(norm) => Op::Normalize(Normalize {
                eps: norm.eps,
                activation: chain.activation,
                residual: chain.has_residual(),
            }),
            other => other.clone(),
        },
    )
}
