//! The readable form of a graph: one line a node, in the order in which they run.
//!
//! ```text
//! graph: 2 operations, 432 parameters, 56320 flops
//! %0: f32[1, 3, 8, 8] = input("x")
//! %1: f32[16, 3, 3, 3] = param("conv1.weight")  @ conv1
//! %2: f32[1, 16, 8, 8] = conv2d(%0, %1, padding=[1, 1])  @ conv1
//! return %2
//! ```

use std::fmt;

use crate::op::Attributes;
use crate::{Graph, Node, Op};

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} = {}(", self.id, self.output, self.op.name())?;
        let mut comma = "";
        for input in &self.inputs {
            write!(f, "{comma}{input}")?;
            comma = ", ";
        }
        for attribute in Attributes::of(&self.op) {
            write!(f, "{comma}{attribute}")?;
            comma = ", ";
        }
        f.write_str(")")?;
        if !self.scope.is_empty() {
            write!(f, "  @ {}", self.scope)?;
        }
        Ok(())
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources = |op: &Op| matches!(op, Op::Input(_) | Op::Param(_) | Op::Constant(_));
        let operations = self.nodes.iter().filter(|n| !sources(&n.op)).count();
        writeln!(
            f,
            "graph: {operations} operations, {} parameters, {} flops",
            self.param_count(),
            self.flops()
        )?;
        for node in &self.nodes {
            writeln!(f, "{node}")?;
        }
        let outputs: Vec<String> = self.outputs.iter().map(ToString::to_string).collect();
        write!(f, "return {}", outputs.join(", "))
    }
}
