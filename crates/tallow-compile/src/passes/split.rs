//! Training: splits operations into parts that have gradients of their own or are shared between forward and backward.
//!
//! Batch normalisation becomes statistics, normalising and the next running statistics; attention becomes two matrix
//! products and a softmax.

use std::collections::HashMap;

use tallow_graph::op::{
    Attention, BatchNorm, BatchStats, Concat, MulScalar, Normalize, Permute, Reshape, RunningStat,
    Softmax, Statistic,
};
use tallow_graph::{Graph, GraphError, Node, NodeId, Op};

use crate::rewrite::Rewrite;

/// The next value of each buffer that a training step changes.
pub(crate) type RunningStats = Vec<(String, NodeId)>;

/// The split graph, and the buffers that a step changes.
pub(crate) fn split(graph: &Graph) -> Result<(Graph, RunningStats), GraphError> {
    let mut rewrite = Rewrite::new(graph);
    let mut running = Running::default();
    for node in &graph.nodes {
        match &node.op {
            Op::BatchNorm(op) => batch_norm(&mut rewrite, node, op, &mut running)?,
            Op::Attention(op) => attention(&mut rewrite, node, op)?,
            _ => {
                rewrite.keep(node)?;
            }
        }
    }
    let buffers = running.order.iter().filter_map(|name| {
        let next = running.next.get(name)?;
        Some((name.clone(), *next))
    });
    let buffers = buffers.collect();
    Ok((rewrite.finish()?, buffers))
}

/// The latest value of each running statistic. A norm that runs twice moves it twice.
#[derive(Default)]
struct Running {
    next: HashMap<String, NodeId>,
    order: Vec<String>,
}

fn batch_norm(
    rewrite: &mut Rewrite<'_>,
    node: &Node,
    op: &BatchNorm,
    running: &mut Running,
) -> Result<(), GraphError> {
    let scope = node.scope.as_str();
    let inputs = rewrite.mapped(&node.inputs);
    let &[x, weight, bias, mean, var] = inputs.as_slice() else {
        rewrite.keep(node)?;
        return Ok(());
    };
    let stats = if op.train {
        let stats = rewrite.push(Op::BatchStats(BatchStats), &[x], scope)?;
        for (statistic, index) in [(Statistic::Mean, 3), (Statistic::Variance, 4)] {
            move_running(rewrite, node, op, running, (stats, statistic, index))?;
        }
        stats
    } else {
        let channels = rewrite.type_of(mean).shape[0];
        let row = Op::Reshape(Reshape {
            shape: vec![1, channels],
        });
        let mean = rewrite.push(row.clone(), &[mean], scope)?;
        let var = rewrite.push(row, &[var], scope)?;
        rewrite.push(Op::Concat(Concat { dim: 0 }), &[mean, var], scope)?
    };
    let normalize = Op::Normalize(Normalize {
        eps: op.eps,
        activation: None,
        residual: false,
    });
    let y = rewrite.push(normalize, &[x, stats, weight, bias], scope)?;
    rewrite.replace(node, y);
    Ok(())
}

fn move_running(
    rewrite: &mut Rewrite<'_>,
    node: &Node,
    op: &BatchNorm,
    running: &mut Running,
    (stats, statistic, index): (NodeId, Statistic, usize),
) -> Result<(), GraphError> {
    let buffer = rewrite.old(node.inputs[index]);
    let Op::Param(param) = &buffer.op else {
        return Ok(());
    };
    let x = &rewrite.old(node.inputs[0]).output;
    let channels = x.shape[1].max(1) as u64;
    let next = Op::RunningStat(RunningStat {
        statistic,
        momentum: op.momentum,
        count: x.elements() / channels,
    });
    let present = match running.next.get(&param.name) {
        Some(&present) => present,
        None => {
            running.order.push(param.name.clone());
            rewrite.get(buffer.id)
        }
    };
    let moved = rewrite.push(next, &[present, stats], &node.scope)?;
    running.next.insert(param.name.clone(), moved);
    Ok(())
}

/// `softmax(scale · q · kᵀ) · v`.
fn attention(rewrite: &mut Rewrite<'_>, node: &Node, op: &Attention) -> Result<(), GraphError> {
    let scope = node.scope.as_str();
    let inputs = rewrite.mapped(&node.inputs);
    let transpose = Op::Permute(Permute {
        dims: vec![0, 1, 3, 2],
    });
    let keys = rewrite.push(transpose, &[inputs[1]], scope)?;
    let scores = rewrite.push(Op::MatMul, &[inputs[0], keys], scope)?;
    let scale = Op::MulScalar(MulScalar { value: op.scale });
    let scores = rewrite.push(scale, &[scores], scope)?;
    let shares = rewrite.push(Op::Softmax(Softmax { dim: 3 }), &[scores], scope)?;
    let y = rewrite.push(Op::MatMul, &[shares, inputs[2]], scope)?;
    rewrite.replace(node, y);
    Ok(())
}
