//! Operators that move elements.

use tallow_graph::op::{Concat, Constant, Expand, Literal, Permute, Reshape, Slice};
use tallow_graph::{NodeId, Op};

use super::constant::known;
use super::{Call, Data, Reader, Value, one};
use crate::Result;

/// The same elements in another shape, known or not.
fn reshaped(reader: &mut Reader, value: &Value, shape: Vec<usize>) -> Result<Vec<Value>> {
    if let Value::Constant(constant) = value
        && let Data::Ints(values) = &constant.data
    {
        let count: usize = shape.iter().product();
        if count == values.len() {
            return Ok(known(shape, Data::Ints(values.clone())));
        }
    }
    let x = reader.tensor(value)?;
    one(reader.push(Op::Reshape(Reshape { shape }), &[x])?)
}

pub(super) fn reshape(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let zero_is_zero = call.int("allowzero", 0) != 0;
    let x = call.input(0)?;
    let from = reader.shape_of(&x)?;
    let Some(wanted) = call.ints_or_input("shape", 1)? else {
        return Err(call.refuse("has no shape", "give it"));
    };
    let mut shape = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (index, &size) in wanted.iter().enumerate() {
        shape.push(match size {
            -1 if open.is_none() => {
                open = Some(index);
                1
            }
            0 if !zero_is_zero && index < from.len() => from[index],
            size => call.sizes(&[size], "a size of")?[0],
        });
    }
    if let Some(open) = open {
        let count: usize = from.iter().product();
        let rest = shape
            .iter()
            .fold(1usize, |rest, &size| rest.saturating_mul(size));
        shape[open] = count.checked_div(rest).unwrap_or(0);
    }
    reshaped(reader, &x, shape)
}

pub(super) fn flatten(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let axis = call.int("axis", 1);
    let x = call.input(0)?;
    let shape = reader.shape_of(&x)?;
    let rank = shape.len();
    // The dimension behind the last one is allowed here.
    let axis = if axis == rank as i64 {
        rank
    } else {
        call.axis(axis, rank)?
    };
    let split = [&shape[..axis], &shape[axis..]];
    reshaped(reader, &x, split.map(|part| part.iter().product()).to_vec())
}

pub(super) fn squeeze(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let shape = reader.shape_of(&x)?;
    let axes = match call.ints_or_input("axes", 1)? {
        Some(axes) => {
            let axes = axes.iter().map(|&axis| call.axis(axis, shape.len()));
            axes.collect::<Result<Vec<usize>>>()?
        }
        None => (0..shape.len()).filter(|&axis| shape[axis] == 1).collect(),
    };
    let kept = (0..shape.len()).filter(|axis| !axes.contains(axis));
    let kept = kept.map(|axis| shape[axis]).collect();
    reshaped(reader, &x, kept)
}

pub(super) fn unsqueeze(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let shape = reader.shape_of(&x)?;
    let Some(axes) = call.ints_or_input("axes", 1)? else {
        return Err(call.refuse("has no axes", "give them"));
    };
    let rank = shape.len() + axes.len();
    let axes = axes.iter().map(|&axis| call.axis(axis, rank));
    let axes: Vec<usize> = axes.collect::<Result<_>>()?;
    let mut sizes = shape.iter();
    let size = |axis: usize| match axes.contains(&axis) {
        true => 1,
        false => sizes.next().copied().unwrap_or(1),
    };
    let shape = (0..rank).map(size).collect();
    reshaped(reader, &x, shape)
}

pub(super) fn transpose(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(reader, 0)?;
    let rank = reader.dims(x).len();
    let dims = match call.ints("perm") {
        Some(perm) => call.sizes(&perm, "the order")?,
        None => (0..rank).rev().collect(),
    };
    one(reader.push(Op::Permute(Permute { dims }), &[x])?)
}

pub(super) fn concat(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let axis = call.int("axis", 0);
    let lists = call.inputs.iter().map(|input| match input {
        Some(Value::Constant(constant)) if constant.shape.len() == 1 => match &constant.data {
            Data::Ints(values) => Some(values.clone()),
            Data::Floats(_) => None,
        },
        _ => None,
    });
    if let Some(lists) = lists.collect::<Option<Vec<_>>>() {
        let joined = lists.concat();
        return Ok(known(vec![joined.len()], Data::Ints(joined)));
    }
    let inputs = call.tensors(reader)?;
    let rank = inputs.first().map_or(0, |&first| reader.dims(first).len());
    let dim = call.axis(axis, rank)?;
    one(reader.push(Op::Concat(Concat { dim }), &inputs)?)
}

pub(super) fn expand(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(reader, 0)?;
    let Some(shape) = call.known_ints(1, "shape")? else {
        return Err(call.refuse("has no shape", "give it"));
    };
    let wanted = call.sizes(&shape, "the shape")?;
    let from = reader.dims(x);
    let rank = from.len().max(wanted.len());
    let at = |sizes: &[usize], axis: usize| {
        let missing = rank - sizes.len();
        axis.checked_sub(missing).map_or(1, |axis| sizes[axis])
    };
    // Either may be the larger one.
    let shape = (0..rank).map(|axis| match at(&wanted, axis) {
        1 => at(&from, axis),
        size => size,
    });
    let shape = shape.collect();
    one(reader.push(Op::Expand(Expand { shape }), &[x])?)
}

pub(super) fn slice(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let starts = call.ints_or_input("starts", 1)?.unwrap_or_default();
    let ends = call.ints_or_input("ends", 2)?.unwrap_or_default();
    let axes = call.ints_or_input("axes", 3)?;
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = call
        .known_ints(4, "steps")?
        .unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(call.refuse("has lists of different lengths", "give one entry an axis"));
    }
    let x = call.input(0)?;
    let shape = reader.shape_of(&x)?;
    let mut slices = Vec::with_capacity(starts.len());
    for index in 0..starts.len() {
        let dim = call.axis(axes[index], shape.len())?;
        let size = shape[dim] as i64;
        let Some(step) = usize::try_from(steps[index]).ok().filter(|&step| step > 0) else {
            let problem = format!("has the step {}", steps[index]);
            return Err(call.refuse(problem, "it is read forwards alone"));
        };
        let bound = |at: i64| {
            let from_start = if at < 0 { at.saturating_add(size) } else { at };
            from_start.clamp(0, size) as usize
        };
        let (start, end) = (bound(starts[index]), bound(ends[index]));
        let end = end.max(start);
        // Longer steps than the range reach the same elements.
        let step = step.min((end - start).max(1));
        slices.push(Slice {
            dim,
            start,
            end,
            step,
        });
    }
    if let (Value::Constant(constant), [only]) = (&x, slices.as_slice())
        && let Data::Ints(values) = &constant.data
        && shape.len() == 1
    {
        let part = values[only.start..only.end].iter().step_by(only.step);
        let part: Vec<i64> = part.copied().collect();
        return Ok(known(vec![part.len()], Data::Ints(part)));
    }
    let mut y = reader.tensor(&x)?;
    for slice in slices {
        y = reader.push(Op::Slice(slice), &[y])?;
    }
    one(y)
}

pub(super) fn split(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let axis = call.int("axis", 0);
    let parts = call.int("num_outputs", call.outputs as i64);
    let sizes = call.ints_or_input("split", 1)?;
    let x = call.tensor(reader, 0)?;
    let shape = reader.dims(x);
    let dim = call.axis(axis, shape.len())?;
    let parts = usize::try_from(parts).unwrap_or(0).clamp(1, shape[dim]);
    let sizes = match sizes {
        Some(sizes) => call.sizes(&sizes, "the sizes")?,
        None => {
            // All alike, but for a smaller last one.
            let size = shape[dim].div_ceil(parts);
            let part = |index: usize| size.min(shape[dim].saturating_sub(index * size));
            (0..parts).map(part).collect()
        }
    };
    let mut start = 0usize;
    let mut outputs = Vec::with_capacity(sizes.len());
    for size in sizes {
        let end = start.saturating_add(size);
        let slice = Slice {
            dim,
            start,
            end,
            step: 1,
        };
        outputs.push(Value::Node(reader.push(Op::Slice(slice), &[x])?));
        start = end;
    }
    if start != shape[dim] {
        let problem = format!("splits {start} of {}", shape[dim]);
        return Err(call.refuse(problem, "give sizes that add up"));
    }
    Ok(outputs)
}

pub(super) fn pad(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let mode = call.text("mode", "constant");
    if mode != "constant" {
        return Err(call.refuse(
            format!("has the mode {mode}"),
            "it is read with a constant alone",
        ));
    }
    let attribute = call.float("value", 0.0);
    let pads = call.ints_or_input("pads", 1)?.unwrap_or_default();
    let value = match call.known(2, "value")?.as_deref().map(|known| &known.data) {
        Some(Data::Floats(values)) => values.first().copied().unwrap_or(0.0),
        Some(Data::Ints(_)) => return Err(call.refuse("pads with an integer", "give a float")),
        None => attribute,
    };
    let x = call.tensor(reader, 0)?;
    let rank = reader.dims(x).len();
    let axes = match call.known_ints(3, "axes")? {
        Some(axes) => {
            let axes = axes.iter().map(|&axis| call.axis(axis, rank));
            axes.collect::<Result<Vec<usize>>>()?
        }
        None => (0..rank).collect(),
    };
    let pads = call.sizes(&pads, "pads of")?;
    if pads.len() != 2 * axes.len() {
        return Err(call.refuse(format!("has {} pads", pads.len()), "give two an axis"));
    }
    let (before, after) = pads.split_at(axes.len());
    let mut y = x;
    for ((&axis, &before), &after) in axes.iter().zip(before).zip(after) {
        y = padded(reader, y, axis, [before, after], value)?;
    }
    one(y)
}

/// A value before and after, along one dimension.
pub(super) fn padded(
    reader: &mut Reader,
    x: NodeId,
    dim: usize,
    pads: [usize; 2],
    value: f32,
) -> Result<NodeId> {
    let mut parts = Vec::with_capacity(3);
    let edge = |reader: &mut Reader, size: usize| -> Result<Option<NodeId>> {
        if size == 0 {
            return Ok(None);
        }
        let mut shape = reader.dims(x);
        shape[dim] = size;
        let value = Literal::from_f32(vec![1; shape.len()], &[value]);
        let value = reader.push(Op::Constant(Constant { value }), &[])?;
        Ok(Some(reader.push(Op::Expand(Expand { shape }), &[value])?))
    };
    parts.extend(edge(reader, pads[0])?);
    parts.push(x);
    parts.extend(edge(reader, pads[1])?);
    match parts.as_slice() {
        [x] => Ok(*x),
        parts => reader.push(Op::Concat(Concat { dim }), parts),
    }
}
