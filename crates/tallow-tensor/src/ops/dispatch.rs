//! The one way that every operation takes: check, compute, record.

use candle_core::{DType, Result, Tensor};
use tallow_graph::{Op, ShapeError, TensorType};

use crate::{Error, convert, no_grad, nonfinite, record, trace};

/// Checks `inputs` against `op`'s rule, computes with candle's operations, and records.
pub(super) fn plain(
    op: Op,
    inputs: &[&Tensor],
    compute: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    let (types, out) = types(&op, inputs)?;
    let span = trace::operation(&op, &types, &out);
    let output = compute()?;
    drop(span);
    finish(op, inputs, output)
}

/// As [`plain`], but with `kernels` where they apply: everything is on the CPU, nothing is empty, floats are f32 or
/// narrower.
///
/// `kernels` is given the inputs made contiguous and f32, and the output's shape. Half precision is computed in f32
/// and rounded at the end: candle's own products and convolutions refuse it on the CPU.
pub(super) fn run<const N: usize>(
    op: Op,
    inputs: [&Tensor; N],
    kernels: impl FnOnce(&[Tensor; N], &[usize]) -> Result<Tensor>,
    portable: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    let (types, out) = types(&op, &inputs)?;
    let span = trace::operation(&op, &types, &out);
    let output = match kernel_dtype(&inputs) {
        None => portable()?,
        Some(dtype) => {
            let mut prepared = inputs.map(Tensor::clone);
            for input in prepared.iter_mut().filter(|input| input.dtype().is_float()) {
                *input = input.to_dtype(DType::F32)?.contiguous()?;
            }
            kernels(&prepared, &out.shape)?.to_dtype(dtype)?
        }
    };
    drop(span);
    finish(op, &inputs, output)
}

/// The floating-point type of inputs that the kernels can take. Integers are indices beside floats; arithmetic of
/// integers alone is candle's.
fn kernel_dtype(inputs: &[&Tensor]) -> Option<DType> {
    let on_cpu = |input: &&Tensor| input.device().is_cpu() && input.elem_count() > 0;
    let mut floats = inputs
        .iter()
        .map(|input| input.dtype())
        .filter(DType::is_float);
    let first = floats.next()?;
    let known = matches!(first, DType::F32 | DType::F16 | DType::BF16);
    (known && floats.all(|dtype| dtype == first) && inputs.iter().all(on_cpu)).then_some(first)
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

/// candle's CPU operations panic beyond that.
const MAX_RANK: usize = 8;

/// The shape of what `op` gives for these inputs.
pub(super) fn check(op: &Op, inputs: &[&Tensor]) -> Result<Vec<usize>> {
    Ok(types(op, inputs)?.1.shape)
}

/// The types of the inputs, and that of what `op` gives for them.
pub(super) fn types(op: &Op, inputs: &[&Tensor]) -> Result<(Vec<TensorType>, TensorType)> {
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
    Ok((types, output))
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
