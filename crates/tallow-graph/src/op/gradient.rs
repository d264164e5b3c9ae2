//! [`Grad`]: the gradient of any operation with respect to one of its inputs, as an operation of its own.
//!
//! It names the operation it belongs to and the types of that operation's inputs, so that its own shape rule is
//! that operation's: nothing about shapes is said twice.

use serde::{Deserialize, Serialize};

use super::rule::{Attributes, Problem, Rule, Signature};
use crate::{Op, TensorType};

/// The gradient of the loss with respect to input `wrt` of an operation, from `dy`, the one with respect to its
/// output, and the values that [`Grad::saved`] names.
///
/// Made for operations whose gradient isn't a few other operations of the vocabulary; [`Grad::saved`] says which.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grad {
    /// The operation.
    pub of: Box<Op>,
    /// Which of its inputs.
    pub wrt: usize,
    /// The types of all its inputs.
    pub inputs: Vec<TensorType>,
    /// Whether a last input is added to the gradient, as where a value is read twice.
    pub add: bool,
}

/// A value of the forward pass that a gradient reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// An input of the operation.
    Input(usize),
    /// What the operation gave.
    Output,
}

impl Grad {
    /// What the gradient of `of` with respect to input `wrt` reads besides `dy`, in order; `None` where there is no
    /// such operation, because the gradient is made of others or doesn't exist.
    pub fn saved(of: &Op, wrt: usize) -> Option<&'static [Saved]> {
        use Saved::{Input, Output};
        Some(match (of, wrt) {
            (Op::Conv2d(_) | Op::Linear, 0) => &[Input(1)],
            (Op::Conv2d(_) | Op::Linear | Op::LayerNorm(_) | Op::GroupNorm(_), 1) => &[Input(0)],
            (Op::Embedding, 1) => &[Input(0)],
            // What these let through is seen in their output as well, which is kept anyway.
            (Op::Relu | Op::Relu6, 0) => &[Output],
            (Op::Gelu(_) | Op::Silu | Op::Sigmoid | Op::Tanh | Op::Hardswish, 0) => &[Input(0)],
            (Op::LayerNorm(_) | Op::GroupNorm(_), 0) => &[Input(0), Input(1)],
            (Op::MaxPool2d(_) | Op::AdaptiveMaxPool2d(_), 0) => &[Input(0)],
            (
                Op::AvgPool2d(_) | Op::AdaptiveAvgPool2d(_) | Op::Interpolate(_) | Op::Slice(_),
                0,
            ) => &[],
            (Op::Softmax(_) | Op::LogSoftmax(_), 0) => &[Output],
            (Op::CrossEntropy(_), 0) => &[Input(0), Input(1)],
            // The module keeps what it needs from its run; its output says that this comes after it.
            (Op::Opaque(_), 0) => &[Output],
            _ => return None,
        })
    }

    fn output(&self) -> Result<TensorType, Problem> {
        let given = self.of.infer(&self.inputs);
        given.map_err(|error| {
            Problem::new(
                format!("the operation it belongs to can't be: {error}"),
                "give the types of that operation's inputs",
            )
        })
    }

    fn check_input(
        &self,
        role: &str,
        given: &TensorType,
        expected: &TensorType,
    ) -> Result<(), Problem> {
        if given == expected {
            return Ok(());
        }
        Err(Problem::new(
            format!("{role} is {given}, the operation it belongs to has {expected}"),
            "give the value of the forward pass",
        ))
    }
}

impl Rule for Grad {
    fn name(&self) -> &'static str {
        match (&*self.of, self.wrt) {
            (Op::Conv2d(_), 0) => "conv2d_backward_input",
            (Op::Conv2d(_), _) => "conv2d_backward_weight",
            (Op::Linear, 0) => "linear_backward_input",
            (Op::Linear, _) => "linear_backward_weight",
            (Op::Embedding, _) => "embedding_backward",
            (Op::Relu, _) => "relu_backward",
            (Op::Relu6, _) => "relu6_backward",
            (Op::Gelu(_), _) => "gelu_backward",
            (Op::Silu, _) => "silu_backward",
            (Op::Sigmoid, _) => "sigmoid_backward",
            (Op::Tanh, _) => "tanh_backward",
            (Op::Hardswish, _) => "hardswish_backward",
            (Op::LayerNorm(_), 0) => "layer_norm_backward_input",
            (Op::LayerNorm(_), _) => "layer_norm_backward_weight",
            (Op::GroupNorm(_), 0) => "group_norm_backward_input",
            (Op::GroupNorm(_), _) => "group_norm_backward_weight",
            (Op::MaxPool2d(_), _) => "max_pool2d_backward",
            (Op::AvgPool2d(_), _) => "avg_pool2d_backward",
            (Op::AdaptiveAvgPool2d(_), _) => "adaptive_avg_pool2d_backward",
            (Op::AdaptiveMaxPool2d(_), _) => "adaptive_max_pool2d_backward",
            (Op::Interpolate(_), _) => "interpolate_backward",
            (Op::Softmax(_), _) => "softmax_backward",
            (Op::LogSoftmax(_), _) => "log_softmax_backward",
            (Op::CrossEntropy(_), _) => "cross_entropy_backward",
            (Op::Slice(_), _) => "slice_backward",
            (Op::Opaque(_), _) => "opaque_backward",
            _ => "backward",
        }
    }

    fn signature(&self) -> Signature {
        Signature::variadic(&["dy"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let Some(saved) = Self::saved(&self.of, self.wrt) else {
            return Err(Problem::new(
                format!(
                    "{} has no such gradient for input {}",
                    self.of.name(),
                    self.wrt
                ),
                "express it by other operations",
            ));
        };
        let expected = 1 + saved.len() + usize::from(self.add);
        if inputs.len() != expected {
            return Err(Problem::new(
                format!("it was given {} inputs", inputs.len()),
                format!("give it {expected}: dy, then what the gradient reads, then what is added"),
            ));
        }
        let output = self.output()?;
        self.check_input("dy", &inputs[0], &output)?;
        for (saved, given) in saved.iter().zip(&inputs[1..]) {
            match saved {
                Saved::Input(index) => {
                    self.check_input(self.of.input_role(*index), given, &self.inputs[*index])?;
                }
                Saved::Output => self.check_input("y", given, &output)?,
            }
        }
        let result = &self.inputs[self.wrt];
        if self.add {
            self.check_input("what is added", &inputs[expected - 1], result)?;
        }
        Ok(result.clone())
    }

    fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        match self.macs(inputs, output) {
            0 => output.elements().saturating_mul(2),
            macs => macs.saturating_mul(2),
        }
    }

    /// Each gradient of a product costs what the product costs.
    fn macs(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        self.output()
            .map_or(0, |output| self.of.macs(&self.inputs, &output))
    }

    fn attributes(&self, list: &mut Attributes) {
        for attribute in Attributes::of(&self.of) {
            list.show_text(attribute);
        }
        list.show_unless("add", self.add, false);
    }
}
