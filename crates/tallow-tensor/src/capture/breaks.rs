//! [`Break`]: why a value can't be part of a graph, in words for the author of the model.

use std::fmt;

use tallow_graph::{NodeId, TensorType};

use super::recorder::{Reader, Recorder};

/// A break and the node that stands in for its value.
pub(super) type Found = (NodeId, Break);

/// A value that a recorded operation reads and no recorded operation made.
#[derive(Debug, Clone, PartialEq)]
pub struct Break {
    /// The innermost module that contains both the last recorded operation before the value and its reader: the one
    /// whose code made it. Empty for the root.
    pub module: String,
    /// The operation that made the value, where its elements tell: `relu`, `relu or relu6`, `detach`, ... Otherwise `a raw
    /// operation`.
    pub operation: String,
    /// The type of the value.
    pub value: TensorType,
    /// Who reads it: `conv2d in layer1.conv2, as x`.
    pub reader: String,
    /// The last operation that was recorded before: `%12 batch_norm in layer1.bn1`.
    pub after: Option<String>,
    /// Why the value can't be recorded.
    pub reason: String,
    /// What to write instead.
    pub remedy: String,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.module.as_str() {
            "" => write!(f, "in the model's root: ")?,
            module => write!(f, "in module `{module}`: ")?,
        }
        write!(f, "{} gave {}", self.operation, self.value)?;
        write!(f, "\n   read by: {}", self.reader)?;
        if let Some(after) = &self.after {
            write!(f, "\n   last recorded before: {after}")?;
        }
        write!(f, "\n   why: {}", self.reason)?;
        write!(f, "\n   write instead: {}", self.remedy)
    }
}

/// `conv2d in layer1.conv2, as x`.
pub(super) fn describe_reader(reader: &Reader) -> String {
    match reader.operation {
        Some(operation) => format!("{operation}{}, as {}", place(&reader.scope), reader.role),
        None if reader.scope.is_empty() => "the caller, as the model's result".to_string(),
        None => format!("the caller of `{}`, as its result", reader.scope),
    }
}

/// `%12 batch_norm in layer1.bn1`.
pub(super) fn describe_node(run: &Recorder, id: NodeId) -> String {
    match run.graph.node(id) {
        Some(node) => format!("{id} {}{}", node.op.name(), place(&node.scope)),
        None => id.to_string(),
    }
}

fn place(scope: &str) -> String {
    match scope {
        "" => String::new(),
        scope => format!(" in {scope}"),
    }
}

/// The module that contains both paths: their common leading segments.
pub(super) fn common_module(a: &str, b: &str) -> String {
    let shared = a.split('.').zip(b.split('.')).take_while(|(x, y)| x == y);
    shared.map(|(x, _)| x).collect::<Vec<_>>().join(".")
}
