//! Rounds what is multiplied to bfloat16, for `Precision::Bf16`: the book's autocast, decided by the table below.
//!
//! Sums, norms, softmax, losses, residual additions, biases and updates stay in 32-bit floats, and so do the parameters:
//! what is rounded is a copy. PyTorch's autocast rounds the results of products too; here they are kept.
//!
//! Where the CPU multiplies bfloat16, kernels round what they read, and those that are faster by another way, such as
//! Winograd's, multiply floats as they are: only what no such kernel reads is rounded here.

use std::collections::HashMap;

use tallow_graph::op::Grad;
use tallow_graph::{Graph, GraphError, NodeId, Op};

use crate::compiler::multiplies_bf16;
use crate::rewrite::Rewrite;

/// The inputs of an operation that are rounded: those that it multiplies with each other and sums up.
fn rounded(op: &Op, by_kernels: bool) -> &'static [usize] {
    match op {
        Op::Attention(_) => &[0, 1, 2],
        _ if by_kernels => &[],
        Op::Conv2d(_) | Op::FusedConv2d(_) | Op::Linear | Op::MatMul => &[0, 1],
        // The gradient of what comes out with the other operand.
        Op::Grad(Grad { of, wrt: 0 | 1, .. }) if matches!(**of, Op::Conv2d(_) | Op::Linear) => {
            &[0, 1]
        }
        _ => &[],
    }
}

pub(super) fn run(graph: &Graph) -> Result<Graph, GraphError> {
    let by_kernels = multiplies_bf16();
    // Each value is rounded once, however many read it.
    let mut copies: HashMap<NodeId, NodeId> = HashMap::new();
    Rewrite::apply(graph, |rewrite, node| {
        let places = rounded(&node.op, by_kernels);
        if places.is_empty() {
            return Ok(false);
        }
        let mut inputs = rewrite.mapped(&node.inputs);
        for &place in places {
            let value = inputs[place];
            inputs[place] = match copies.get(&value) {
                Some(&copy) => copy,
                None => {
                    let copy = rewrite.push(Op::RoundBf16, &[value], &node.scope)?;
                    *copies.entry(value).or_insert(copy)
                }
            };
        }
        let id = rewrite.push(node.op.clone(), &inputs, &node.scope)?;
        rewrite.replace(node, id);
        Ok(true)
    })
}
