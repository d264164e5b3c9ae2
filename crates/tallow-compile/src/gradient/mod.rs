//! The gradient as a graph transformation: [`differentiate`] appends the backward pass to a graph.
//!
//! Walks the operations from the loss backwards. Only values that a trainable parameter flows into get a gradient, so
//! that none is computed for the images, or behind a frozen layer. The rules of the operations are in `rules`.

mod rules;

use std::collections::HashMap;

use tallow_graph::op::{Literal, ParamKind};
use tallow_graph::{Graph, NodeId, Op};

use crate::{Error, Result};

/// The parameters that have a gradient, in the order of their nodes, and what it is.
pub(crate) type Gradients = Vec<(String, NodeId)>;

/// What a backward pass gives.
pub(crate) struct Backward {
    pub(crate) gradients: Gradients,
    /// The gradients with respect to what opaque modules read; computing one computes those of the module's parameters.
    pub(crate) opaque: Vec<NodeId>,
}

/// Appends to `graph` the gradients of `loss`, a scalar, with respect to every trainable parameter that it depends on.
pub(crate) fn differentiate(graph: &mut Graph, loss: NodeId) -> Result<Backward> {
    let ty = &graph.nodes[loss.0].output;
    if ty.elements() != 1 || ty.rank() != 0 {
        return Err(Error::LossNotScalar { found: ty.clone() });
    }
    let needed = needed(graph);
    if !needed[loss.0] {
        return Err(nothing_to_train(graph));
    }
    let forward = graph.nodes.len();
    let mut tape = Tape {
        needed,
        gradients: HashMap::new(),
        opaque: Vec::new(),
        graph,
    };
    let one = tape.constant_one()?;
    tape.gradients.insert(loss, one);
    for place in (0..forward).rev() {
        tape.step_back(NodeId(place))?;
    }
    Ok(Backward {
        gradients: tape.of_parameters(),
        opaque: tape.opaque,
    })
}

/// Which values a trainable parameter flows into.
fn needed(graph: &Graph) -> Vec<bool> {
    let mut needed = vec![false; graph.nodes.len()];
    for node in &graph.nodes {
        needed[node.id.0] = match &node.op {
            Op::Param(param) => param.kind == ParamKind::Trainable,
            // Its parameters aren't in the graph.
            Op::Opaque(_) => true,
            _ => node.output.dtype.is_float() && node.inputs.iter().any(|id| needed[id.0]),
        };
    }
    needed
}

fn nothing_to_train(graph: &Graph) -> Error {
    let kinds: Vec<_> = graph.params().map(|(_, param)| param.kind).collect();
    let count = |kind| kinds.iter().filter(|&&k| k == kind).count();
    let trainable = count(ParamKind::Trainable);
    Error::NothingToTrain {
        parameters: trainable + count(ParamKind::Frozen),
        trainable,
    }
}

/// The backward pass as it grows.
struct Tape<'g> {
    graph: &'g mut Graph,
    needed: Vec<bool>,
    /// What is known so far of the gradient with respect to each value.
    gradients: HashMap<NodeId, NodeId>,
    /// Gradients with respect to what opaque modules read.
    opaque: Vec<NodeId>,
}

impl Tape<'_> {
    fn constant_one(&mut self) -> Result<NodeId> {
        let value = Literal::from_f32(Vec::new(), &[1.0]);
        let op = Op::Constant(tallow_graph::op::Constant { value });
        Ok(self.graph.push(op, &[], "")?)
    }

    /// Hands the gradient of a node on to what it reads.
    fn step_back(&mut self, id: NodeId) -> Result<()> {
        let node = &self.graph.nodes[id.0];
        let is_source = matches!(node.op, Op::Param(_) | Op::Input(_) | Op::Constant(_));
        if is_source || !self.needed[id.0] {
            return Ok(());
        }
        let Some(&dy) = self.gradients.get(&id) else {
            return Ok(());
        };
        let node = node.clone();
        for (index, dx) in self.backward(&node, dy)? {
            self.accumulate(node.inputs[index], dx, &node.scope)?;
        }
        Ok(())
    }

    fn accumulate(&mut self, value: NodeId, gradient: NodeId, scope: &str) -> Result<()> {
        let sum = match self.gradients.get(&value) {
            Some(&known) => self.graph.push(Op::Add, &[known, gradient], scope)?,
            None => gradient,
        };
        self.gradients.insert(value, sum);
        Ok(())
    }

    fn of_parameters(&self) -> Gradients {
        let trainable = self.graph.params().filter_map(|(node, param)| {
            let gradient = self.gradients.get(&node.id)?;
            Some((param.name.clone(), *gradient))
        });
        trainable.collect()
    }
}
