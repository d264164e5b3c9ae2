//! The gradient of each operation, in other operations.

use tallow_graph::op::{
    Expand, Grad, MulScalar, NormalizeBackward, NormalizeSums, Permute, Reshape, Saved, Slice, Sum,
};
use tallow_graph::{Node, NodeId, Op};

use super::Tape;
use crate::{Error, Result};

/// The gradients of a node's inputs: index and value, those that are needed.
type InputGradients = Vec<(usize, NodeId)>;

impl Tape<'_> {
    /// The gradients with respect to the inputs of `node`, from `dy`, the one with respect to its output.
    pub(super) fn backward(&mut self, node: &Node, dy: NodeId) -> Result<InputGradients> {
        if let Op::Normalize(_) = node.op {
            return self.normalize(node, dy);
        }
        if let Op::Opaque(_) = node.op {
            let dx = self.grad(node, dy, 0, &[Saved::Output])?;
            self.opaque.push(dx);
            let is_needed = self.needed[node.inputs[0].0];
            return Ok(is_needed.then_some((0, dx)).into_iter().collect());
        }
        let mut gradients = Vec::new();
        for (index, &input) in node.inputs.iter().enumerate() {
            if self.needed[input.0] {
                gradients.push((index, self.input_gradient(node, dy, index)?));
            }
        }
        Ok(gradients)
    }

    fn input_gradient(&mut self, node: &Node, dy: NodeId, index: usize) -> Result<NodeId> {
        if let Some(saved) = Grad::saved(&node.op, index) {
            return self.grad(node, dy, index, saved);
        }
        let shape = self.shape(node.inputs[index]);
        let scope = node.scope.as_str();
        match (&node.op, index) {
            (Op::Add, _) | (Op::Sub, 0) | (Op::Expand(_), _) => self.sum_to(dy, &shape, scope),
            (Op::Sub, _) => {
                let dx = self.sum_to(dy, &shape, scope)?;
                self.scale(dx, -1.0, scope)
            }
            (Op::Mul, _) => {
                let dx = self.push(Op::Mul, &[dy, node.inputs[1 - index]], scope)?;
                self.sum_to(dx, &shape, scope)
            }
            (Op::Div, 0) => {
                let dx = self.push(Op::Div, &[dy, node.inputs[1]], scope)?;
                self.sum_to(dx, &shape, scope)
            }
            (Op::Div, _) => {
                // -dy a / b² = -dy y / b
                let along = self.push(Op::Mul, &[dy, node.id], scope)?;
                let quotient = self.push(Op::Div, &[along, node.inputs[1]], scope)?;
                let dx = self.sum_to(quotient, &shape, scope)?;
                self.scale(dx, -1.0, scope)
            }
            (Op::AddScalar(_), _) => Ok(dy),
            // The mask is a function of the draw: dropping the gradient drops the same elements.
            (Op::MulScalar(_) | Op::Dropout(_) | Op::DropPath(_), _) => {
                self.push(node.op.clone(), &[dy], scope)
            }
            (Op::Reshape(_), _) => self.reshape(dy, shape, scope),
            (Op::Permute(permute), _) => self.permute(dy, inverse(&permute.dims), scope),
            (Op::Concat(concat), _) => self.part(node, dy, concat.dim, index),
            (Op::Mean(mean), _) => {
                let dx = self.spread(dy, &mean.dims, &shape, scope)?;
                let count: usize = mean.dims.iter().map(|&dim| shape[dim]).product();
                self.scale(dx, 1.0 / count as f64, scope)
            }
            (Op::Sum(sum), _) => self.spread(dy, &sum.dims, &shape, scope),
            (Op::MatMul, 0) => {
                let b = self.transposed(node.inputs[1], scope)?;
                let dx = self.push(Op::MatMul, &[dy, b], scope)?;
                self.sum_to(dx, &shape, scope)
            }
            (Op::MatMul, _) => {
                let a = self.transposed(node.inputs[0], scope)?;
                let dx = self.push(Op::MatMul, &[a, dy], scope)?;
                self.sum_to(dx, &shape, scope)
            }
            (Op::Linear | Op::LayerNorm(_), 2) => self.sum_to(dy, &shape, scope),
            (Op::Conv2d(_) | Op::GroupNorm(_), 2) => self.sum_but_channels(dy, scope),
            (op, _) => Err(Error::Unsupported {
                operation: op.name().to_string(),
                module: node.scope.clone(),
                problem: format!(
                    "has no gradient with respect to its {}",
                    op.input_role(index)
                ),
                remedy: "train this part eagerly, or freeze the parameters before it",
            }),
        }
    }

    /// The gradient that is an operation of its own.
    fn grad(&mut self, node: &Node, dy: NodeId, wrt: usize, saved: &[Saved]) -> Result<NodeId> {
        let types = node
            .inputs
            .iter()
            .map(|id| self.graph.nodes[id.0].output.clone());
        let op = Op::Grad(Grad {
            of: Box::new(node.op.clone()),
            wrt,
            inputs: types.collect(),
            add: false,
        });
        let mut inputs = vec![dy];
        inputs.extend(saved.iter().map(|saved| match *saved {
            Saved::Input(index) => node.inputs[index],
            Saved::Output => node.id,
        }));
        self.push(op, &inputs, &node.scope)
    }

    /// Normalising: the two sums are the gradients of bias and weight, and what that of x needs.
    fn normalize(&mut self, node: &Node, dy: NodeId) -> Result<InputGradients> {
        let Op::Normalize(op) = &node.op else {
            return Ok(Vec::new());
        };
        let scope = node.scope.as_str();
        let [x, stats, weight, bias] = [0, 1, 2, 3].map(|index| node.inputs[index]);
        let sums = Op::NormalizeSums(NormalizeSums {
            eps: op.eps,
            activation: None,
        });
        let sums = self.push(sums, &[dy, x, stats], scope)?;
        let mut gradients = Vec::new();
        if self.needed[x.0] {
            let dx = Op::NormalizeBackward(NormalizeBackward {
                eps: op.eps,
                activation: None,
                batch: matches!(self.graph.nodes[stats.0].op, Op::BatchStats(_)),
            });
            gradients.push((0, self.push(dx, &[dy, x, stats, weight, sums], scope)?));
        }
        for (index, parameter, row) in [(2, weight, 1), (3, bias, 0)] {
            if self.needed[parameter.0] {
                gradients.push((index, self.row(sums, row, scope)?));
            }
        }
        Ok(gradients)
    }

    /// Row `row` of a `[2, C]` value, as `[C]`.
    fn row(&mut self, value: NodeId, row: usize, scope: &str) -> Result<NodeId> {
        let channels = self.shape(value)[1];
        let slice = Op::Slice(Slice {
            dim: 0,
            start: row,
            end: row + 1,
            step: 1,
        });
        let row = self.push(slice, &[value], scope)?;
        self.reshape(row, vec![channels], scope)
    }

    /// What one input of a concatenation gets of the gradient.
    fn part(&mut self, node: &Node, dy: NodeId, dim: usize, index: usize) -> Result<NodeId> {
        let sizes: Vec<_> = node.inputs.iter().map(|&id| self.shape(id)[dim]).collect();
        let start = sizes[..index].iter().sum();
        let slice = Op::Slice(Slice {
            dim,
            start,
            end: start + sizes[index],
            step: 1,
        });
        self.push(slice, &[dy], &node.scope)
    }

    /// Sums over the dimensions along which a value of `shape` was repeated.
    fn sum_to(&mut self, value: NodeId, shape: &[usize], scope: &str) -> Result<NodeId> {
        let from = self.shape(value);
        if from == shape {
            return Ok(value);
        }
        let missing = from.len() - shape.len();
        let repeated =
            |&dim: &usize| dim < missing || (shape[dim - missing] == 1 && from[dim] != 1);
        let dims: Vec<usize> = (0..from.len()).filter(repeated).collect();
        let sum = match dims.is_empty() {
            true => value,
            false => {
                let sum = Op::Sum(Sum {
                    dims,
                    keep_dim: true,
                });
                self.push(sum, &[value], scope)?
            }
        };
        self.reshape(sum, shape.to_vec(), scope)
    }

    fn sum_but_channels(&mut self, value: NodeId, scope: &str) -> Result<NodeId> {
        let dims = (0..self.shape(value).len())
            .filter(|&dim| dim != 1)
            .collect();
        let sum = Op::Sum(Sum {
            dims,
            keep_dim: false,
        });
        self.push(sum, &[value], scope)
    }

    /// Repeats the gradient of a reduction along the dimensions that it reduced.
    fn spread(
        &mut self,
        value: NodeId,
        dims: &[usize],
        shape: &[usize],
        scope: &str,
    ) -> Result<NodeId> {
        let kept = |(dim, &size): (usize, &usize)| if dims.contains(&dim) { 1 } else { size };
        let kept: Vec<usize> = shape.iter().enumerate().map(kept).collect();
        let value = self.reshape(value, kept, scope)?;
        let expand = Op::Expand(Expand {
            shape: shape.to_vec(),
        });
        self.push(expand, &[value], scope)
    }

    /// A matrix with its last two dimensions exchanged.
    fn transposed(&mut self, value: NodeId, scope: &str) -> Result<NodeId> {
        let rank = self.shape(value).len();
        let mut dims: Vec<usize> = (0..rank).collect();
        dims.swap(rank - 1, rank - 2);
        self.permute(value, dims, scope)
    }

    fn permute(&mut self, value: NodeId, dims: Vec<usize>, scope: &str) -> Result<NodeId> {
        self.push(Op::Permute(Permute { dims }), &[value], scope)
    }

    fn reshape(&mut self, value: NodeId, shape: Vec<usize>, scope: &str) -> Result<NodeId> {
        if self.shape(value) == shape {
            return Ok(value);
        }
        self.push(Op::Reshape(Reshape { shape }), &[value], scope)
    }

    fn scale(&mut self, value: NodeId, factor: f64, scope: &str) -> Result<NodeId> {
        self.push(Op::MulScalar(MulScalar { value: factor }), &[value], scope)
    }

    fn push(&mut self, op: Op, inputs: &[NodeId], scope: &str) -> Result<NodeId> {
        Ok(self.graph.push(op, inputs, scope)?)
    }

    fn shape(&self, value: NodeId) -> Vec<usize> {
        self.graph.nodes[value.0].output.shape.clone()
    }
}

/// The order that undoes an order of dimensions.
fn inverse(dims: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; dims.len()];
    for (place, &dim) in dims.iter().enumerate() {
        inverse[dim] = place;
    }
    inverse
}
