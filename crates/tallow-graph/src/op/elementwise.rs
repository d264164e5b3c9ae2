//! Operations on each element by itself: arithmetic and activations.

use serde::{Deserialize, Serialize};

use super::check;
use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// `x + value`, for any shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AddScalar {
    /// What is added.
    pub value: f64,
}

/// `x · value`, for any shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MulScalar {
    /// The factor.
    pub value: f64,
}

/// `x · Φ(x)` ("Gaussian Error Linear Units", 2016), for any shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gelu {
    /// Whether Φ is approximated with tanh, PyTorch's `approximate="tanh"`; exact (erf) otherwise.
    pub approximate: bool,
}

/// An activation without attributes: floats of any shape in, the same type out.
pub(super) struct Activation {
    name: &'static str,
    /// Operations an element.
    cost: u64,
}

pub(super) const RELU: Activation = Activation {
    name: "relu",
    cost: 1,
};
pub(super) const RELU6: Activation = Activation {
    name: "relu6",
    cost: 2,
};
pub(super) const SILU: Activation = Activation {
    name: "silu",
    cost: 4,
};
pub(super) const SIGMOID: Activation = Activation {
    name: "sigmoid",
    cost: 3,
};
pub(super) const TANH: Activation = Activation {
    name: "tanh",
    cost: 1,
};
pub(super) const HARDSWISH: Activation = Activation {
    name: "hardswish",
    cost: 5,
};

pub(super) const ROUND_BF16: Activation = Activation {
    name: "round_bf16",
    cost: 1,
};

impl Rule for Activation {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::float("x", &inputs[0])?;
        Ok(inputs[0].clone())
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements().saturating_mul(self.cost)
    }
}

impl Rule for Gelu {
    fn name(&self) -> &'static str {
        "gelu"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::float("x", &inputs[0])?;
        Ok(inputs[0].clone())
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        // x · 0.5 · (1 + erf(x / √2)), or the tanh of a cubic.
        let cost = if self.approximate { 9 } else { 5 };
        output.elements().saturating_mul(cost)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show_unless("approximate", self.approximate, false);
    }
}

/// An arithmetic operation of two values that broadcast to each other.
pub(super) struct Arithmetic {
    name: &'static str,
}

pub(super) const ADD: Arithmetic = Arithmetic { name: "add" };
pub(super) const SUB: Arithmetic = Arithmetic { name: "sub" };
pub(super) const MUL: Arithmetic = Arithmetic { name: "mul" };
pub(super) const DIV: Arithmetic = Arithmetic { name: "div" };

impl Rule for Arithmetic {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> Signature {
        Signature::of(&["a", "b"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::same_dtype(&["a", "b"], inputs)?;
        match check::broadcast(&inputs[0].shape, &inputs[1].shape) {
            Some(shape) => Ok(TensorType::new(inputs[0].dtype, shape)),
            None => Err(Problem::new(
                "the shapes don't broadcast",
                "sizes must be equal or 1, compared from the last dimension",
            )),
        }
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements()
    }
}

impl Rule for AddScalar {
    fn name(&self) -> &'static str {
        "add_scalar"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        Ok(inputs[0].clone())
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements()
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show_bare(self.value);
    }
}

impl Rule for MulScalar {
    fn name(&self) -> &'static str {
        "mul_scalar"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        Ok(inputs[0].clone())
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements()
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show_bare(self.value);
    }
}
