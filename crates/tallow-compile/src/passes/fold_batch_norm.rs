//! Inference: puts batch normalisation behind a convolution into the convolution's weight and bias.
//!
//! `scale · conv(x, w) + shift = conv(x, scale · w) + shift`. The folded weight depends on parameters alone; a plan
//! computes it when it reads the parameters, not at every run.

use tallow_graph::op::{FoldBatchNorm, Reshape, Slice};
use tallow_graph::{Graph, GraphError, Node, NodeId, Op};

use crate::rewrite::Rewrite;

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    Rewrite::apply(graph, |rewrite, node| {
        if let Op::Conv2d(_) = node.op {
            // Left out here if its batch norm takes it in, which comes later.
            let reader = rewrite.only_reader(node.id);
            return Ok(reader.is_some_and(|reader| normalises(reader, node.id)));
        }
        let Op::BatchNorm(_) = node.op else {
            return Ok(false);
        };
        let before = rewrite.old(node.inputs[0]);
        let folds = matches!(before.op, Op::Conv2d(_))
            && normalises(node, before.id)
            && rewrite.only_reader(before.id).is_some();
        if folds {
            let id = fold(rewrite, before, node)?;
            rewrite.replace(node, id);
        }
        Ok(folds)
    })
}

/// Whether `node` is a batch norm with fixed statistics whose x is `value`.
fn normalises(node: &Node, value: NodeId) -> bool {
    matches!(&node.op, Op::BatchNorm(norm) if !norm.train) && node.inputs[0] == value
}

fn fold(rewrite: &mut Rewrite<'_>, conv: &Node, norm: &Node) -> Result<NodeId, GraphError> {
    let Op::BatchNorm(op) = &norm.op else {
        return Ok(rewrite.get(norm.inputs[0]));
    };
    let scope = norm.scope.as_str();
    let statistics = rewrite.mapped(&norm.inputs[1..]);
    let folded = rewrite.push(
        Op::FoldBatchNorm(FoldBatchNorm { eps: op.eps }),
        &statistics,
        scope,
    )?;
    let conv_inputs = rewrite.mapped(&conv.inputs);
    let out = rewrite.type_of(conv_inputs[1]).shape[0];
    let scale = row(rewrite, folded, 0, vec![out, 1, 1, 1], scope)?;
    let mut bias = row(rewrite, folded, 1, vec![out], scope)?;
    let weight = rewrite.push(Op::Mul, &[conv_inputs[1], scale], &conv.scope)?;
    if let Some(&own) = conv_inputs.get(2) {
        let scale = row(rewrite, folded, 0, vec![out], scope)?;
        let scaled = rewrite.push(Op::Mul, &[own, scale], &conv.scope)?;
        bias = rewrite.push(Op::Add, &[scaled, bias], &conv.scope)?;
    }
    rewrite.push(
        conv.op.clone(),
        &[conv_inputs[0], weight, bias],
        &conv.scope,
    )
}

/// One row of a `[2, C]` value in another shape.
fn row(
    rewrite: &mut Rewrite<'_>,
    value: NodeId,
    row: usize,
    shape: Vec<usize>,
    scope: &str,
) -> Result<NodeId, GraphError> {
    let slice = Op::Slice(Slice {
        dim: 0,
        start: row,
        end: row + 1,
        step: 1,
    });
    let row = rewrite.push(slice, &[value], scope)?;
    rewrite.push(Op::Reshape(Reshape { shape }), &[row], scope)
}
