//! What can be wrong: an operation that can't take its inputs ([`ShapeError`]), or a graph that breaks its
//! own rules ([`GraphError`]).
//!
//! Every message says what was asked, what was found, and what to do. [`ShapeError`] is raised by eager calls
//! and by graph building alike, so both read the same.

use std::fmt;

use crate::{NodeId, TensorType};

/// An operation was given inputs that it can't take.
///
/// Reads like `conv2d(x: f32[1, 4, 8, 8], weight: f32[16, 3, 3, 3]): x has 4 channels, weight is made for 3;
/// give a weight of shape [16, 4, 3, 3] or an x of 3 channels`.
#[derive(Debug, Clone, PartialEq)]
pub struct ShapeError {
    /// The operation's name, such as `conv2d`.
    pub operation: &'static str,
    /// The role and type of every input given.
    pub inputs: Vec<(String, TensorType)>,
    /// What doesn't fit.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.operation)?;
        for (i, (role, ty)) in self.inputs.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{role}: {ty}")?;
        }
        write!(f, "): {}; {}", self.problem, self.remedy)
    }
}

impl std::error::Error for ShapeError {}

/// A graph breaks one of its rules; see [`Graph::verify`](crate::Graph::verify).
///
/// Each variant that is about a node names the node and its operation.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The operation can't take its inputs.
    #[error("node {node}{}: {source}", place(.scope))]
    Shape {
        /// The node that was checked, or the one that was about to be added.
        node: NodeId,
        /// Its module path.
        scope: String,
        /// What the operation says.
        source: ShapeError,
    },
    /// A node reads a value that isn't made before it.
    #[error(
        "node {node} ({operation}) reads {input}, which is not made before it; nodes stand in the order in which they run"
    )]
    ForwardReference {
        /// The reading node.
        node: NodeId,
        /// Its operation.
        operation: &'static str,
        /// The value it reads.
        input: NodeId,
    },
    /// A node's stored type is not what its operation gives.
    #[error("node {node} ({operation}) is stored as {stored}, but its inputs give {inferred}")]
    Type {
        /// The node.
        node: NodeId,
        /// Its operation.
        operation: &'static str,
        /// The type that the node claims.
        stored: TensorType,
        /// The type that follows from its inputs.
        inferred: TensorType,
    },
    /// A node's id is not its place in the list.
    #[error("node {found} ({operation}) stands at place {place}; ids count nodes from %0 in order")]
    Misplaced {
        /// The id that was found.
        found: NodeId,
        /// The operation of that node.
        operation: &'static str,
        /// Its index in the list.
        place: usize,
    },
    /// The graph returns a value that no node makes.
    #[error("the graph returns {output}, but it has only {nodes} nodes")]
    UnknownOutput {
        /// The value that is returned.
        output: NodeId,
        /// How many nodes there are.
        nodes: usize,
    },
    /// The graph returns nothing, so that every node is dead.
    #[error("the graph returns nothing; set `outputs` to at least one node")]
    NoOutputs,
    /// The list of inputs and the input nodes disagree.
    #[error(
        "the graph lists the inputs [{}], but its input nodes are [{}]; list each input node once",
        names(.listed),
        names(.found)
    )]
    Inputs {
        /// What the graph lists.
        listed: Vec<NodeId>,
        /// What its nodes say.
        found: Vec<NodeId>,
    },
    /// Two inputs, or two parameters, have the same name.
    #[error("node {second} ({operation}) is named `{name}`, as is node {first}; names are unique")]
    DuplicateName {
        /// The node that has the name first.
        first: NodeId,
        /// The node that repeats it.
        second: NodeId,
        /// `input` or `param`.
        operation: &'static str,
        /// The repeated name.
        name: String,
    },
}

fn names(ids: &[NodeId]) -> String {
    let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn place(scope: &str) -> String {
    match scope {
        "" => String::new(),
        scope => format!(" in module `{scope}`"),
    }
}
