//! [`Graph`]: operations in the order in which they run, each with the type of what it gives.
//!
//! Building and counting live here; the rules are checked in `verify.rs`, the text form is in `text.rs`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::op::ParamKind;
use crate::{GraphError, Op, TensorType};

/// A node's place in its graph, and so the name of the value that it makes; written `%3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub usize);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// One operation applied to earlier values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The node's place in [`Graph::nodes`].
    pub id: NodeId,
    /// What it does.
    pub op: Op,
    /// The values it reads, in the order that [`Op::input_role`] names.
    pub inputs: Vec<NodeId>,
    /// The type of what it gives.
    pub output: TensorType,
    /// The path of the module that it belongs to, such as `layer1.0.conv1`; empty at the root.
    pub scope: String,
}

/// A model, or a whole training step, as a list of operations.
///
/// The fields are open so that passes can rewrite them; [`Graph::verify`] says whether the rules still hold.
///
/// ```
/// use tallow_graph::op::{Conv2d, Input, Param, ParamKind};
/// use tallow_graph::{Graph, Op, TensorType};
///
/// let mut graph = Graph::default();
/// let x = graph.push(Op::Input(Input { name: "x".into(), ty: TensorType::f32([1, 3, 8, 8]) }), &[], "")?;
/// let weight = graph.push(
///     Op::Param(Param {
///         name: "conv1.weight".into(),
///         ty: TensorType::f32([16, 3, 3, 3]),
///         kind: ParamKind::Trainable,
///     }),
///     &[],
///     "conv1",
/// )?;
/// let conv = Op::Conv2d(Conv2d { padding: [1, 1], ..Conv2d::default() });
/// let y = graph.push(conv, &[x, weight], "conv1")?;
/// graph.outputs.push(y);
///
/// graph.verify()?;
/// assert_eq!(graph.node(y).map(|n| n.output.to_string()).as_deref(), Some("f32[1, 16, 8, 8]"));
/// assert_eq!(graph.param_count(), 16 * 3 * 3 * 3);
/// # Ok::<(), tallow_graph::GraphError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Operations in the order in which they run.
    pub nodes: Vec<Node>,
    /// The nodes that are fed by the caller, in the order of the arguments.
    pub inputs: Vec<NodeId>,
    /// The values that are returned.
    pub outputs: Vec<NodeId>,
}

impl Graph {
    /// Adds an operation and gives its place; an [`Op::Input`] is added to [`Graph::inputs`] as well.
    ///
    /// # Errors
    /// [`GraphError::ForwardReference`] for an input that isn't in the graph, [`GraphError::Shape`] where the
    /// operation can't take its inputs. The graph is then as it was.
    pub fn push(
        &mut self,
        op: Op,
        inputs: &[NodeId],
        scope: impl Into<String>,
    ) -> Result<NodeId, GraphError> {
        let id = NodeId(self.nodes.len());
        let scope = scope.into();
        let output = self.infer(id, &op, inputs, &scope)?;
        if matches!(op, Op::Input(_)) {
            self.inputs.push(id);
        }
        self.nodes.push(Node {
            id,
            op,
            inputs: inputs.to_vec(),
            output,
            scope,
        });
        Ok(id)
    }

    /// What `op` gives when it reads `inputs` at place `id`.
    pub(crate) fn infer(
        &self,
        id: NodeId,
        op: &Op,
        inputs: &[NodeId],
        scope: &str,
    ) -> Result<TensorType, GraphError> {
        let mut types = Vec::with_capacity(inputs.len());
        for &input in inputs {
            let made_before = self.node(input).filter(|_| input < id);
            let Some(node) = made_before else {
                return Err(GraphError::ForwardReference {
                    node: id,
                    operation: op.name(),
                    input,
                });
            };
            types.push(node.output.clone());
        }
        op.infer(&types).map_err(|source| GraphError::Shape {
            node: id,
            scope: scope.to_string(),
            source,
        })
    }

    /// The node that makes a value, if there is one.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0)
    }

    /// The parameters and buffers, in the order of their nodes.
    pub fn params(&self) -> impl Iterator<Item = (&Node, &crate::op::Param)> {
        self.nodes.iter().filter_map(|node| match &node.op {
            Op::Param(param) => Some((node, param)),
            _ => None,
        })
    }

    /// The number of parameter elements, frozen ones included and buffers not, as PyTorch's
    /// `sum(p.numel() for p in model.parameters())` counts.
    pub fn param_count(&self) -> u64 {
        self.params()
            .filter(|(_, param)| param.kind != ParamKind::Buffer)
            .fold(0, |sum, (_, param)| sum.saturating_add(param.ty.elements()))
    }

    /// The floating-point operations of one run, a multiply-add counted as two; see [`Op::flops`].
    pub fn flops(&self) -> u64 {
        self.total(Op::flops)
    }

    /// The multiply-adds of one run; see [`Op::macs`].
    pub fn macs(&self) -> u64 {
        self.total(Op::macs)
    }

    fn total(&self, cost: impl Fn(&Op, &[TensorType], &TensorType) -> u64) -> u64 {
        self.nodes.iter().fold(0u64, |sum, node| {
            let inputs: Vec<TensorType> = node
                .inputs
                .iter()
                .filter_map(|&id| self.node(id))
                .map(|input| input.output.clone())
                .collect();
            sum.saturating_add(cost(&node.op, &inputs, &node.output))
        })
    }
}
