//! The one way that every operation takes: check, compute, record.

use candle_core::{DType, Error, Result, Tensor};
use tallow_graph::{Op, ShapeError, TensorType};

use crate::{no_grad, nonfinite, record};

/// Checks `inputs` against `op`'s rule, computes, and records.
pub(super) fn run(
    op: Op,
    inputs: &[&Tensor],
    compute: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    check(&op, inputs)?;
    let output = compute()?;
    nonfinite::look(&op, &output)?;
    if record::is_active() {
        // The recorder needs the tape to tell what follows from the inputs, whether or not anyone else does.
        record::node(op, inputs, &output);
        return Ok(output);
    }
    Ok(if no_grad::is_active() {
        output.detach()
    } else {
        output
    })
}

/// The type of what `op` gives for these inputs.
pub(super) fn check(op: &Op, inputs: &[&Tensor]) -> Result<TensorType> {
    let types = inputs
        .iter()
        .map(|input| tensor_type(op, input))
        .collect::<Result<Vec<_>>>()?;
    op.infer(&types).map_err(refuse)
}

/// An error that names the module that is running.
pub(super) fn refuse(error: ShapeError) -> Error {
    crate::Error::shape(error).into()
}

/// An error about values rather than shapes, in the same form.
pub(super) fn invalid(
    op: &Op,
    inputs: &[&Tensor],
    problem: impl Into<String>,
    remedy: impl Into<String>,
) -> Error {
    let inputs = inputs.iter().enumerate().filter_map(|(i, input)| {
        let ty = tensor_type(op, input).ok()?;
        Some((op.input_role(i).to_string(), ty))
    });
    refuse(ShapeError {
        operation: op.name(),
        inputs: inputs.collect(),
        problem: problem.into(),
        remedy: remedy.into(),
    })
}

fn tensor_type(op: &Op, tensor: &Tensor) -> Result<TensorType> {
    let dtype = match tensor.dtype() {
        DType::F32 => tallow_graph::DType::F32,
        DType::F64 => tallow_graph::DType::F64,
        DType::F16 => tallow_graph::DType::F16,
        DType::BF16 => tallow_graph::DType::BF16,
        DType::U8 => tallow_graph::DType::U8,
        DType::U32 => tallow_graph::DType::U32,
        DType::I64 => tallow_graph::DType::I64,
        other => {
            return Err(refuse(ShapeError {
                operation: op.name(),
                inputs: Vec::new(),
                problem: format!("an input holds {other:?}, which no operation takes"),
                remedy: "convert it to f32".to_string(),
            }));
        }
    };
    Ok(TensorType::new(dtype, tensor.dims()))
}
