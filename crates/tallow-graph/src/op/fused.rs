//! Operations that a compiler makes by joining others, and those that say where elements lie.

use serde::{Deserialize, Serialize};

use super::rule::{Attributes, Problem, Rule, Signature};
use super::{Clamp, Conv2d};
use crate::{Op, TensorType};

/// `act(conv2d(x, weight) + bias + residual)`, in one pass over the output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FusedConv2d {
    /// The convolution.
    pub conv: Conv2d,
    /// Whether there is a bias `[O]`.
    pub bias: bool,
    /// Whether there is a residual, of the output's type.
    pub residual: bool,
    /// The activation that is applied last.
    pub activation: Option<Clamp>,
}

/// Elementwise operations in a row, computed tile by tile without storing what lies between.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pointwise {
    /// The operations in order. The last one gives the result.
    pub steps: Vec<PointwiseStep>,
}

/// One operation of a [`Pointwise`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointwiseStep {
    /// An elementwise operation: arithmetic, an activation, or the gradient of one.
    pub op: Op,
    /// What it reads.
    pub reads: Vec<PointwiseValue>,
}

/// What a step of a [`Pointwise`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointwiseValue {
    /// An input of the joined operation.
    Input(usize),
    /// What an earlier step gave.
    Step(usize),
}

/// How the elements of a value lie in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Row-major in the order of the dimensions.
    #[default]
    Contiguous,
    /// `[N, C, H, W]` stored as `[N, H, W, C]`.
    ChannelsLast,
}

/// The same value, its elements in another order in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relayout {
    /// The order to bring them into.
    pub to: Layout,
}

impl Rule for FusedConv2d {
    fn name(&self) -> &'static str {
        "fused_conv2d"
    }

    fn signature(&self) -> Signature {
        Signature::with_optional(&["x", "weight"], &["bias", "residual"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let expected = 2 + usize::from(self.bias) + usize::from(self.residual);
        if inputs.len() != expected {
            return Err(Problem::new(
                format!("it was given {} inputs", inputs.len()),
                format!("its attributes ask for {expected}"),
            ));
        }
        let output = self.conv.infer(&inputs[..2 + usize::from(self.bias)])?;
        match inputs.last().filter(|_| self.residual) {
            Some(residual) if *residual != output => Err(Problem::new(
                format!("residual is {residual}, the convolution gives {output}"),
                "give a residual of the output's type",
            )),
            _ => Ok(output),
        }
    }

    fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        let rest = output.elements().saturating_mul(inputs.len() as u64 - 1);
        self.macs(inputs, output)
            .saturating_mul(2)
            .saturating_add(rest)
    }

    fn macs(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        self.conv.macs(inputs, output)
    }

    fn attributes(&self, list: &mut Attributes) {
        self.conv.attributes(list);
        list.show_unless("bias", self.bias, false);
        list.show_unless("residual", self.residual, false);
        list.show_unless("activation", self.activation, None);
    }
}

impl Rule for Pointwise {
    fn name(&self) -> &'static str {
        "pointwise"
    }

    fn signature(&self) -> Signature {
        Signature::variadic(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let mut given: Vec<TensorType> = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let mut types = Vec::new();
            for read in &step.reads {
                let ty = match *read {
                    PointwiseValue::Input(input) => inputs.get(input),
                    PointwiseValue::Step(step) => given.get(step),
                };
                types.push(ty.cloned().ok_or_else(|| {
                    Problem::new(
                        format!("step {index} reads {read:?}, which there isn't"),
                        "read inputs and earlier steps",
                    )
                })?);
            }
            let ty = step.op.infer(&types).map_err(|error| {
                Problem::new(format!("step {index}: {error}"), "correct the step")
            })?;
            given.push(ty);
        }
        given
            .pop()
            .ok_or_else(|| Problem::new("there is no step", "give at least one"))
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements().saturating_mul(self.steps.len() as u64)
    }

    fn attributes(&self, list: &mut Attributes) {
        let names: Vec<_> = self.steps.iter().map(|step| step.op.name()).collect();
        list.show_text(format!("steps=[{}]", names.join(", ")));
    }
}

impl Rule for Relayout {
    fn name(&self) -> &'static str {
        "relayout"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        if self.to == Layout::ChannelsLast && inputs[0].rank() != 4 {
            return Err(Problem::new(
                format!("x has {} dimensions", inputs[0].rank()),
                "only [N, C, H, W] can be stored channels last",
            ));
        }
        Ok(inputs[0].clone())
    }

    fn flops(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("to", self.to);
    }
}
