//! The rules of a graph, checked as a whole. Passes run this before and after they rewrite.

use std::collections::HashMap;

use crate::{Graph, GraphError, NodeId, Op};

impl Graph {
    /// Checks every rule: ids count from zero, a node reads only values made before it, stored types are what the
    /// operations give, the input list matches the input nodes, every output exists, and names of inputs and of
    /// parameters are unique.
    ///
    /// # Errors
    /// The first rule that is broken, as a [`GraphError`] that names node and operation.
    pub fn verify(&self) -> Result<(), GraphError> {
        self.verify_nodes()?;
        self.verify_inputs()?;
        self.verify_names()?;
        self.verify_outputs()
    }

    fn verify_nodes(&self) -> Result<(), GraphError> {
        for (place, node) in self.nodes.iter().enumerate() {
            let operation = node.op.name();
            if node.id != NodeId(place) {
                return Err(GraphError::Misplaced {
                    found: node.id,
                    operation,
                    place,
                });
            }
            let inferred = self.infer(node.id, &node.op, &node.inputs, &node.scope)?;
            if inferred != node.output {
                return Err(GraphError::Type {
                    node: node.id,
                    operation,
                    stored: node.output.clone(),
                    inferred,
                });
            }
        }
        Ok(())
    }

    fn verify_inputs(&self) -> Result<(), GraphError> {
        let found: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|node| matches!(node.op, Op::Input(_)))
            .map(|node| node.id)
            .collect();
        let mut listed = self.inputs.clone();
        listed.sort();
        if listed != found {
            return Err(GraphError::Inputs {
                listed: self.inputs.clone(),
                found,
            });
        }
        Ok(())
    }

    fn verify_names(&self) -> Result<(), GraphError> {
        let mut seen: HashMap<(&str, &str), NodeId> = HashMap::new();
        for node in &self.nodes {
            let name = match &node.op {
                Op::Input(input) => &input.name,
                Op::Param(param) => &param.name,
                _ => continue,
            };
            let operation = node.op.name();
            if let Some(&first) = seen.get(&(operation, name)) {
                return Err(GraphError::DuplicateName {
                    first,
                    second: node.id,
                    operation,
                    name: name.clone(),
                });
            }
            seen.insert((operation, name), node.id);
        }
        Ok(())
    }

    fn verify_outputs(&self) -> Result<(), GraphError> {
        if self.outputs.is_empty() {
            return Err(GraphError::NoOutputs);
        }
        match self.outputs.iter().find(|id| self.node(**id).is_none()) {
            Some(&output) => Err(GraphError::UnknownOutput {
                output,
                nodes: self.nodes.len(),
            }),
            None => Ok(()),
        }
    }
}
