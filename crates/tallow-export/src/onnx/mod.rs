//! ONNX files: a program written as one, and one read as a program.
//!
//! | file | holds |
//! |---|---|
//! | `proto.rs` | the messages of the format |
//! | `write/` | from the graph's operations to operators |
//! | `read/` | from operators to the graph's operations |
//!
//! `docs/onnx.md` lists what can be read; everything else is refused by name.

mod proto;
mod read;
mod write;

pub use read::{OPERATORS, read};
pub use write::{OPSET, write};

use crate::Error;

/// An operator that can't be written or read.
fn refused(operator: &str, node: &str, problem: impl Into<String>, remedy: &'static str) -> Error {
    Error::Onnx {
        operator: operator.to_string(),
        node: node.to_string(),
        problem: problem.into(),
        remedy,
    }
}
