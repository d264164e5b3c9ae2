//! [`Rewrite`]: a graph on its way into another one, node by node.
//!
//! A pass walks the old graph in order and for each node says what stands for it in the new one: itself, another
//! operation, or a node that is there already.

use tallow_graph::{Graph, GraphError, Node, NodeId, Op, TensorType};

/// The new graph, and what stands for each node of the old one.
pub(crate) struct Rewrite<'g> {
    old: &'g Graph,
    new: Graph,
    map: Vec<Option<NodeId>>,
    readers: Vec<Vec<NodeId>>,
}

impl<'g> Rewrite<'g> {
    pub(crate) fn new(old: &'g Graph) -> Self {
        Self {
            readers: readers(old),
            map: vec![None; old.nodes.len()],
            new: Graph::default(),
            old,
        }
    }

    /// Rewrites a graph with a rule that handles some nodes and returns `false` for those to be kept.
    pub(crate) fn apply(
        old: &'g Graph,
        mut rule: impl FnMut(&mut Self, &'g Node) -> Result<bool, GraphError>,
    ) -> Result<Graph, GraphError> {
        let mut rewrite = Self::new(old);
        for node in &old.nodes {
            if !rule(&mut rewrite, node)? {
                rewrite.keep(node)?;
            }
        }
        rewrite.finish()
    }

    /// Copies a node.
    pub(crate) fn keep(&mut self, node: &Node) -> Result<NodeId, GraphError> {
        let inputs = self.mapped(&node.inputs);
        let id = self
            .new
            .push(node.op.clone(), &inputs, node.scope.as_str())?;
        self.map[node.id.0] = Some(id);
        Ok(id)
    }

    /// Adds an operation on new nodes.
    pub(crate) fn push(
        &mut self,
        op: Op,
        inputs: &[NodeId],
        scope: &str,
    ) -> Result<NodeId, GraphError> {
        self.new.push(op, inputs, scope)
    }

    /// Lets `new` stand for the old node.
    pub(crate) fn replace(&mut self, old: &Node, new: NodeId) {
        self.map[old.id.0] = Some(new);
    }

    /// What stands for an old node that was handled already. One that was left out stands for nothing; the node
    /// number it gets then is refused when it is read.
    pub(crate) fn get(&self, old: NodeId) -> NodeId {
        self.map[old.0].unwrap_or(NodeId(usize::MAX))
    }

    /// [`Rewrite::get`] of several.
    pub(crate) fn mapped(&self, old: &[NodeId]) -> Vec<NodeId> {
        old.iter().map(|&id| self.get(id)).collect()
    }

    /// A node of the old graph.
    pub(crate) fn old(&self, id: NodeId) -> &'g Node {
        &self.old.nodes[id.0]
    }

    /// The old nodes that read an old node, one entry a read. The graph's outputs are not among them.
    pub(crate) fn readers(&self, old: NodeId) -> &[NodeId] {
        &self.readers[old.0]
    }

    /// The one reader of an old node, if there is exactly one and the graph doesn't return it.
    pub(crate) fn only_reader(&self, old: NodeId) -> Option<&'g Node> {
        match self.readers(old) {
            &[reader] if !self.old.outputs.contains(&old) => Some(self.old(reader)),
            _ => None,
        }
    }

    /// Whether the graph returns an old node.
    pub(crate) fn is_output(&self, old: NodeId) -> bool {
        self.old.outputs.contains(&old)
    }

    /// The type of a new node.
    pub(crate) fn type_of(&self, new: NodeId) -> &TensorType {
        &self.new.nodes[new.0].output
    }

    /// The new graph, with the old one's outputs.
    pub(crate) fn finish(mut self) -> Result<Graph, GraphError> {
        self.new.outputs = self.mapped(&self.old.outputs);
        Ok(self.new)
    }
}

/// Who reads each node, one entry a read.
pub(crate) fn readers(graph: &Graph) -> Vec<Vec<NodeId>> {
    let mut readers = vec![Vec::new(); graph.nodes.len()];
    for node in &graph.nodes {
        for input in &node.inputs {
            readers[input.0].push(node.id);
        }
    }
    readers
}
