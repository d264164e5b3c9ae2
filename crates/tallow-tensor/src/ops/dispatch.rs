//! The one way that every operation takes: check, compute, record.

use candle_core::{DType, Result, Tensor};
use tallow_graph::{Op, ShapeError, TensorType};

use crate::{Error, convert, no_grad, nonfinite, record};

/// Checks `inputs` against `op`'s rule, computes with candle's operations, and records.
pub(super) fn plain(
    op: Op,
    inputs: &[&Tensor],
    compute: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    check(&op, inputs)?;
    let output = compute()?;
    finish(op, inputs, output)
}

/// As [`plain`], but with `kernels` where they apply: floats are f32, everything is on the CPU, nothing is empty.
///
/// `kernels` is given the inputs made contiguous, and the output's shape.
pub(super) fn run<const N: usize>(
    op: Op,
    inputs: [&Tensor; N],
    kernels: impl FnOnce(&[Tensor; N], &[usize]) -> Result<Tensor>,
    portable: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    let out = check(&op, &inputs)?;
    let output = if suit_kernels(&inputs) {
        let mut contiguous = inputs.map(Tensor::clone);
        for input in &mut contiguous {
            *input = input.contiguous()?;
        }
        kernels(&contiguous, &out)?
    } else {
        portable()?
    };
    finish(op, &inputs, output)
}

fn finish(op: Op, inputs: &[&Tensor], output: Tensor) -> Result<Tensor> {
    nonfinite::look(&op, &output)?;
    if record::is_active() {
        // The recorder needs the tape to tell what follows from the inputs, whether or not anyone else does.
        record::node(op, inputs, &output);
        return Ok(output);
    }
    Ok(match no_grad::is_active() {
        true => output.detach(),
        false => output,
    })
}

/// Integers are indices beside floats; arithmetic of integers alone is candle's.
fn suit_kernels(inputs: &[&Tensor]) -> bool {
    let is_f32 = |input: &&Tensor| input.dtype() == DType::F32;
    inputs.iter().any(is_f32)
        && inputs.iter().all(|input| {
            (is_f32(input) || input.dtype().is_int())
                && input.device().is_cpu()
                && input.elem_count() > 0
        })
}

/// candle's CPU operations panic beyond that.
const MAX_RANK: usize = 8;

/// The shape of what `op` gives for these inputs.
pub(super) fn check(op: &Op, inputs: &[&Tensor]) -> Result<Vec<usize>> {
    let types = inputs
        .iter()
        .map(|input| convert::tensor_type(input))
        .collect::<crate::Result<Vec<_>>>()?;
    let output = op.infer(&types).map_err(Error::shape)?;
    let rank = types.iter().chain([&output]).map(TensorType::rank).max();
    if rank > Some(MAX_RANK) {
        return Err(invalid(
            op,
            inputs,
            format!("tensors of more than {MAX_RANK} dimensions are not supported"),
            "join neighbouring dimensions with reshape",
        ));
    }
    Ok(output.shape)
}

/// An error about values rather than shapes, in the same form.
pub(super) fn invalid(
    op: &Op,
    inputs: &[&Tensor],
    problem: impl Into<String>,
    remedy: impl Into<String>,
) -> candle_core::Error {
    let inputs = inputs.iter().enumerate().filter_map(|(i, input)| {
        let ty = convert::tensor_type(input).ok()?;
        Some((op.input_role(i).to_string(), ty))
    });
    let error = Error::shape(ShapeError {
        operation: op.name(),
        inputs: inputs.collect(),
        problem: problem.into(),
        remedy: remedy.into(),
    });
    error.into()
}
