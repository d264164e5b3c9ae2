//! Products with matrices and tables.

use tallow_graph::op::{MulScalar, Permute, Reshape, Slice};
use tallow_graph::{DType, NodeId, Op};

use super::constant::known;
use super::{Call, Data, Reader, Value, one};
use crate::Result;

fn transposed(reader: &mut Reader, x: NodeId) -> Result<NodeId> {
    reader.push(Op::Permute(Permute { dims: vec![1, 0] }), &[x])
}

fn reshaped(reader: &mut Reader, x: NodeId, shape: Vec<usize>) -> Result<NodeId> {
    reader.push(Op::Reshape(Reshape { shape }), &[x])
}

/// `alpha · A · B + beta · C`.
pub(super) fn gemm(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let (alpha, beta) = (call.float("alpha", 1.0), call.float("beta", 1.0));
    let (a_turned, b_turned) = (call.int("transA", 0) != 0, call.int("transB", 0) != 0);
    let mut a = call.tensor(reader, 0)?;
    let b = call.tensor(reader, 1)?;
    let bias = call.optional(reader, 2)?;
    if a_turned {
        a = transposed(reader, a)?;
    }
    let outputs =
        reader.dims(b)[usize::from(!b_turned).min(reader.dims(b).len().saturating_sub(1))];
    let vector = bias.filter(|&bias| reader.dims(bias) == [outputs]);
    if b_turned && alpha == 1.0 && beta == 1.0 && (bias.is_none() || vector.is_some()) {
        let mut inputs = vec![a, b];
        inputs.extend(vector);
        return one(reader.push(Op::Linear, &inputs)?);
    }
    let b = if b_turned { transposed(reader, b)? } else { b };
    let mut y = reader.push(Op::MatMul, &[a, b])?;
    let scale = |reader: &mut Reader, x: NodeId, by: f32| {
        let value = f64::from(by);
        match by == 1.0 {
            true => Ok(x),
            false => reader.push(Op::MulScalar(MulScalar { value }), &[x]),
        }
    };
    y = scale(reader, y, alpha)?;
    if let Some(bias) = bias {
        let bias = scale(reader, bias, beta)?;
        y = reader.push(Op::Add, &[y, bias])?;
    }
    one(y)
}

/// NumPy's `matmul`, vectors included.
pub(super) fn matmul(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let (mut a, mut b) = (call.tensor(reader, 0)?, call.tensor(reader, 1)?);
    let (a_dims, b_dims) = (reader.dims(a), reader.dims(b));
    if let [length] = *a_dims {
        a = reshaped(reader, a, vec![1, length])?;
    }
    if let [length] = *b_dims {
        b = reshaped(reader, b, vec![length, 1])?;
    }
    let mut y = reader.push(Op::MatMul, &[a, b])?;
    let mut shape = reader.dims(y);
    if a_dims.len() == 1 {
        shape.remove(shape.len() - 2);
    }
    if b_dims.len() == 1 {
        shape.pop();
    }
    if shape != reader.dims(y) {
        y = reshaped(reader, y, shape)?;
    }
    one(y)
}

/// Rows of a table by indices that are computed, or parts of any dimension by indices that are known.
pub(super) fn gather(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let axis = call.int("axis", 0);
    let (data, indices) = (call.input(0)?, call.input(1)?);
    let shape = reader.shape_of(&data)?;
    let axis = call.axis(axis, shape.len())?;
    if let Value::Constant(indices) = &indices {
        let Data::Ints(values) = &indices.data else {
            return Err(call.refuse("has indices of floats", "give integers"));
        };
        let places = values.iter().map(|&value| call.axis(value, shape[axis]));
        let places: Vec<usize> = places.collect::<Result<_>>()?;
        if let Value::Constant(data) = &data
            && let Data::Ints(data) = &data.data
            && shape.len() == 1
        {
            let picked = places.iter().map(|&place| data[place]).collect();
            return Ok(known(indices.shape.clone(), Data::Ints(picked)));
        }
        let data = reader.tensor(&data)?;
        return one(parts(reader, data, axis, &places, &indices.shape)?);
    }
    let (table, indices) = (reader.tensor(&data)?, reader.tensor(&indices)?);
    if axis != 0 || reader.ty(indices).dtype == DType::F32 {
        let problem = format!("picks from dimension {axis} by computed indices");
        return Err(call.refuse(
            problem,
            "it is read for dimension 0, or with constant indices",
        ));
    }
    let row: usize = shape[1..].iter().product();
    let flat = reshaped(reader, table, vec![shape[0], row])?;
    let picked = reader.push(Op::Embedding, &[indices, flat])?;
    let mut to = reader.dims(indices);
    to.extend(&shape[1..]);
    one(reshaped(reader, picked, to)?)
}

/// Known places of a dimension, joined.
fn parts(
    reader: &mut Reader,
    data: NodeId,
    axis: usize,
    places: &[usize],
    indices: &[usize],
) -> Result<NodeId> {
    let mut picked = Vec::with_capacity(places.len());
    for &start in places {
        let slice = Slice {
            dim: axis,
            start,
            end: start + 1,
            step: 1,
        };
        picked.push(reader.push(Op::Slice(slice), &[data])?);
    }
    let joined = match picked.as_slice() {
        [one] => *one,
        many => reader.push(Op::Concat(tallow_graph::op::Concat { dim: axis }), many)?,
    };
    let mut shape = reader.dims(data);
    shape.splice(axis..=axis, indices.iter().copied());
    reshaped(reader, joined, shape)
}
