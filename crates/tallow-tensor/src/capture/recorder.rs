//! [`Recorder`]: the graph as it grows during one run, and the values that stand behind its nodes.

use std::collections::{HashMap, HashSet};

use candle_core::{Device, Tensor, TensorId};
use safetensors::tensor::View;
use tallow_graph::op::{Constant, Input, Literal, Param, ParamKind};
use tallow_graph::{Graph, NodeId, Op, TensorType};

use super::calls::Calls;
use crate::{Error, Result, convert, scope};

/// Who reads a value, and as what.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    /// The operation's name, or `None` for the caller, who reads the model's result.
    pub(super) operation: Option<&'static str>,
    /// What the value is to the operation.
    pub(super) role: &'static str,
    /// The module that was running.
    pub(super) scope: String,
}

/// A value on candle's tape that no recorded operation made.
#[derive(Debug)]
pub(super) struct Unrecorded {
    /// The input that stands in for it.
    pub(super) node: NodeId,
    /// The value.
    pub(super) value: Tensor,
    /// Who read it first.
    pub(super) reader: Reader,
    /// The last operation that was recorded before.
    pub(super) after: Option<NodeId>,
}

/// The graph of one run.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(super) graph: Graph,
    /// The value of each node. Holding them keeps what their identities mean.
    pub(super) values: Vec<Tensor>,
    /// Values that broke the graph, in the order in which they were found.
    pub(super) unrecorded: Vec<Unrecorded>,
    /// Who read each constant first.
    pub(super) constants: Vec<(NodeId, Reader)>,
    /// Who read each variable that has no name in `Params` first.
    pub(super) unnamed: Vec<(NodeId, Reader)>,
    /// Modules that may be opaque.
    pub(super) calls: Calls,
    pub(super) nodes: HashMap<TensorId, NodeId>,
    params: HashMap<TensorId, (String, ParamKind)>,
    pub(super) names: HashSet<String>,
    pub(super) failure: Option<Error>,
}

impl Recorder {
    pub(super) fn new(params: HashMap<TensorId, (String, ParamKind)>, calls: Calls) -> Self {
        Self {
            calls,
            names: params.values().map(|(name, _)| name.clone()).collect(),
            params,
            ..Self::default()
        }
    }

    pub(super) fn input(&mut self, name: &str, value: &Tensor) -> Result<NodeId> {
        let op = Op::Input(Input {
            name: name.to_string(),
            ty: convert::tensor_type(value)?,
        });
        self.push(op, &[], value, String::new())
    }

    /// Records an operation; the first failure is kept for [`Recorder::finish`].
    pub(crate) fn node(&mut self, op: Op, inputs: &[&Tensor], output: &Tensor) {
        if self.failure.is_some() {
            return;
        }
        if let Err(error) = self.try_node(op, inputs, output) {
            self.failure = Some(error);
        }
    }

    fn try_node(&mut self, op: Op, inputs: &[&Tensor], output: &Tensor) -> Result<()> {
        let scope = scope::path();
        let mut ids = Vec::with_capacity(inputs.len());
        for (i, value) in inputs.iter().enumerate() {
            let reader = Reader {
                operation: Some(op.name()),
                role: op.input_role(i),
                scope: scope.clone(),
            };
            ids.push(self.resolve(value, reader)?);
        }
        self.push(op, &ids, output, scope)?;
        Ok(())
    }

    /// The node that stands for a value; one is made if the value is not known yet.
    fn resolve(&mut self, value: &Tensor, reader: Reader) -> Result<NodeId> {
        if let Some(&id) = self.nodes.get(&value.id()) {
            return Ok(id);
        }
        let scope = reader.scope.clone();
        if let Some((name, kind)) = self.params.get(&value.id()).cloned() {
            return self.param(name, kind, value, scope);
        }
        if value.is_variable() {
            let name = self.unused_name(&reader);
            let id = self.param(name, ParamKind::Trainable, value, scope)?;
            self.unnamed.push((id, reader));
            return Ok(id);
        }
        if value.track_op() {
            return self.unrecorded(value, reader);
        }
        let op = Op::Constant(Constant {
            value: literal(value)?,
        });
        let id = self.push(op, &[], value, scope)?;
        self.constants.push((id, reader));
        Ok(id)
    }

    fn param(
        &mut self,
        name: String,
        kind: ParamKind,
        value: &Tensor,
        scope: String,
    ) -> Result<NodeId> {
        let ty = convert::tensor_type(value)?;
        self.push(Op::Param(Param { name, ty, kind }), &[], value, scope)
    }

    /// Stands an input of its own in for a value that broke the graph, so that recording goes on.
    fn unrecorded(&mut self, value: &Tensor, reader: Reader) -> Result<NodeId> {
        let after = self.last_operation();
        let name = format!("unrecorded {}", self.unrecorded.len());
        let id = self.input(&name, value)?;
        self.unrecorded.push(Unrecorded {
            node: id,
            value: value.clone(),
            reader,
            after,
        });
        Ok(id)
    }

    pub(super) fn last_operation(&self) -> Option<NodeId> {
        let is_operation = |op: &Op| !matches!(op, Op::Input(_) | Op::Param(_) | Op::Constant(_));
        let last = self.graph.nodes.iter().rev().find(|n| is_operation(&n.op));
        last.map(|node| node.id)
    }

    /// A name from the module path and the role, such as `conv1.weight`, numbered where it is taken.
    fn unused_name(&mut self, reader: &Reader) -> String {
        let name = match reader.scope.as_str() {
            "" => reader.role.to_string(),
            scope => format!("{scope}.{}", reader.role),
        };
        let numbered = (2..).map(|n| format!("{name}_{n}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        let free = names.find(|name| !self.names.contains(name));
        let free = free.unwrap_or(name);
        self.names.insert(free.clone());
        free
    }

    pub(super) fn push(
        &mut self,
        op: Op,
        inputs: &[NodeId],
        value: &Tensor,
        scope: String,
    ) -> Result<NodeId> {
        let name = op.name();
        let id = self.graph.push(op, inputs, scope)?;
        let inferred = &self.graph.nodes[id.0].output;
        let given = convert::tensor_type(value)?;
        if given != *inferred {
            return Err(tallow_graph::GraphError::Type {
                node: id,
                operation: name,
                stored: given,
                inferred: inferred.clone(),
            }
            .into());
        }
        self.nodes.insert(value.id(), id);
        self.values.push(value.clone());
        Ok(id)
    }

    /// Ends the run: the outputs are read, and the first failure comes to light.
    pub(super) fn finish(mut self, outputs: &[Tensor]) -> Result<Self> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        for output in outputs {
            let reader = Reader {
                operation: None,
                role: "the result",
                scope: String::new(),
            };
            let id = self.resolve(output, reader)?;
            self.graph.outputs.push(id);
        }
        Ok(self)
    }

    /// The type of a node's value.
    pub(super) fn type_of(&self, id: NodeId) -> Option<&TensorType> {
        self.graph.node(id).map(|node| &node.output)
    }
}

fn literal(value: &Tensor) -> Result<Literal> {
    let ty = convert::tensor_type(value)?;
    let value = value.to_device(&Device::Cpu)?.contiguous()?;
    Ok(Literal {
        ty,
        bytes: value.data().into(),
    })
}
