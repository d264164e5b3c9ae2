//! Norms, softmax and reductions.

use tallow_graph::op::{
    BatchNorm, Constant, Expand, GroupNorm, LayerNorm, Literal, LogSoftmax, Mean, Permute, Reshape,
    Softmax, Sum,
};
use tallow_graph::{NodeId, Op};

use super::{Call, Reader, Value, one};
use crate::Result;

pub(super) fn batch(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    call.only("training_mode", 0)?;
    call.only("spatial", 1)?;
    let norm = BatchNorm {
        eps: call.float("epsilon", 1e-5).into(),
        momentum: 0.1,
        train: false,
    };
    call.ignore("momentum");
    let inputs = call.tensors(reader)?;
    one(reader.push(Op::BatchNorm(norm), &inputs)?)
}

/// A constant of one value in every place.
fn filled(reader: &mut Reader, value: f32, shape: Vec<usize>) -> Result<NodeId> {
    let value = Literal::from_f32(vec![1; shape.len()], &[value]);
    let value = reader.push(Op::Constant(Constant { value }), &[])?;
    reader.push(Op::Expand(Expand { shape }), &[value])
}

pub(super) fn layer(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let axis = call.int("axis", -1);
    let eps = call.float("epsilon", 1e-5).into();
    call.only("stash_type", 1)?;
    let (x, weight) = (call.tensor(reader, 0)?, call.tensor(reader, 1)?);
    let shape = reader.dims(x);
    let axis = call.axis(axis, shape.len())?;
    if reader.dims(weight) != shape[axis..] {
        let problem = format!("has a scale of {:?}", reader.dims(weight));
        return Err(call.refuse(problem, "give it the shape that is normalised over"));
    }
    let bias = match call.optional(reader, 2)? {
        Some(bias) => bias,
        None => filled(reader, 0.0, shape[axis..].to_vec())?,
    };
    one(reader.push(Op::LayerNorm(LayerNorm { eps }), &[x, weight, bias])?)
}

pub(super) fn group(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let eps = call.float("epsilon", 1e-5).into();
    let groups = call.int("num_groups", 0);
    call.only("stash_type", 1)?;
    let groups = call.sizes(&[groups], "the number of groups")?[0];
    let inputs = call.tensors(reader)?;
    one(reader.push(Op::GroupNorm(GroupNorm { groups, eps }), &inputs)?)
}

/// A group of each channel.
pub(super) fn instance(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let eps = call.float("epsilon", 1e-5).into();
    let inputs = call.tensors(reader)?;
    let shape = inputs.first().map(|&x| reader.dims(x)).unwrap_or_default();
    let groups = shape.get(1).copied().unwrap_or(0);
    one(reader.push(Op::GroupNorm(GroupNorm { groups, eps }), &inputs)?)
}

pub(super) fn softmax(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    along(reader, call, |dim| Op::Softmax(Softmax { dim }))
}

pub(super) fn log_softmax(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    along(reader, call, |dim| Op::LogSoftmax(LogSoftmax { dim }))
}

fn along(reader: &mut Reader, call: &mut Call<'_>, op: fn(usize) -> Op) -> Result<Vec<Value>> {
    let flattens = reader.opset < 13;
    let axis = call.int("axis", if flattens { 1 } else { -1 });
    let x = call.tensor(reader, 0)?;
    let shape = reader.dims(x);
    let axis = call.axis(axis, shape.len())?;
    let last = shape.len() - 1;
    if axis == last {
        return one(reader.push(op(axis), &[x])?);
    }
    if !flattens {
        // Plans compute it along the last dimension.
        let mut dims: Vec<usize> = (0..shape.len()).collect();
        dims.swap(axis, last);
        let swap = Op::Permute(Permute { dims });
        let turned = reader.push(swap.clone(), &[x])?;
        let y = reader.push(op(last), &[turned])?;
        return one(reader.push(swap, &[y])?);
    }
    // Before version 13 it was over all dimensions from the axis on.
    let rows = shape[..axis].iter().product();
    let columns = shape[axis..].iter().product();
    let flat = Reshape {
        shape: vec![rows, columns],
    };
    let flat = reader.push(Op::Reshape(flat), &[x])?;
    let y = reader.push(op(1), &[flat])?;
    one(reader.push(Op::Reshape(Reshape { shape }), &[y])?)
}

pub(super) fn reduce_mean(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    reduce(reader, call, |dims, keep_dim| {
        Op::Mean(Mean { dims, keep_dim })
    })
}

pub(super) fn reduce_sum(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    reduce(reader, call, |dims, keep_dim| {
        Op::Sum(Sum { dims, keep_dim })
    })
}

fn reduce(
    reader: &mut Reader,
    call: &mut Call<'_>,
    op: fn(Vec<usize>, bool) -> Op,
) -> Result<Vec<Value>> {
    let keep = call.int("keepdims", 1) != 0;
    let none_is_none = call.int("noop_with_empty_axes", 0) != 0;
    let axes = call.ints_or_input("axes", 1)?.unwrap_or_default();
    let x = call.tensor(reader, 0)?;
    let rank = reader.dims(x).len();
    if axes.is_empty() && (none_is_none || rank == 0) {
        return one(x);
    }
    let axes = match axes.as_slice() {
        [] => (0..rank).collect(),
        axes => {
            let axes = axes.iter().map(|&axis| call.axis(axis, rank));
            axes.collect::<Result<Vec<usize>>>()?
        }
    };
    one(reader.push(op(axes, keep), &[x])?)
}
