//! Joins a convolution with the residual that is added to it and the activation behind: one pass over the output.

use tallow_graph::op::FusedConv2d;
use tallow_graph::{Graph, GraphError, Op};

use super::chain;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    chain::fuse(
        graph,
        |op| matches!(op, Op::Conv2d(_)),
        |op, inputs, chain| match op {
            Op::Conv2d(conv) => Op::FusedConv2d(FusedConv2d {
                conv: conv.clone(),
                bias: inputs > 2,
                residual: chain.has_residual(),
                activation: chain.activation,
            }),
            other => other.clone(),
        },
    )
}
