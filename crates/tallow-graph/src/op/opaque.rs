//! [`Opaque`]: a module that runs as it is, because it can't be written in the vocabulary.

use serde::{Deserialize, Serialize};

use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// A module of one input and one output whose operations are unknown.
///
/// The graph says where it stands and what it gives; the module itself is held by whoever captured the graph. Such a
/// graph can be run where that module is at hand, and nowhere else: it can't be exported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opaque {
    /// Which of the capture's opaque modules it is.
    pub module: usize,
    /// What it gives.
    pub output: TensorType,
}

impl Rule for Opaque {
    fn name(&self) -> &'static str {
        "opaque"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, _inputs: &[TensorType]) -> Result<TensorType, Problem> {
        Ok(self.output.clone())
    }

    /// What the module does isn't known, so it isn't counted.
    fn flops(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("module", self.module);
    }
}
