//! Values that are known while the file is read: weights, shapes, and the integers that are computed from shapes.

use std::rc::Rc;

use super::{Call, Data, Known, Reader, Value};
use crate::Result;
use crate::onnx::proto::{self, element};
use crate::onnx::refused;

/// Constants of more elements than this are weights.
const MANY: usize = 256;
/// Elements of a constant that is made here.
const MOST_ELEMENTS: usize = 1 << 20;

/// A constant without a name.
pub(super) fn known(shape: Vec<usize>, data: Data) -> Vec<Value> {
    vec![Value::Constant(Rc::new(Known {
        name: String::new(),
        shape,
        data,
    }))]
}

/// A tensor of the file.
pub(super) fn of_tensor(tensor: &proto::Tensor) -> Result<Known> {
    let refuse = |problem: String, remedy| Err(refused("tensor", &tensor.name, problem, remedy));
    if tensor.data_location != 0 {
        return refuse("lies in another file".into(), "save the model in one file");
    }
    let mut shape = Vec::with_capacity(tensor.dims.len());
    for &dim in &tensor.dims {
        match usize::try_from(dim) {
            Ok(dim) => shape.push(dim),
            Err(_) => {
                return refuse(
                    format!("has the shape {:?}", tensor.dims),
                    "check the model",
                );
            }
        }
    }
    let data = match elements(tensor) {
        Some(data) => data,
        None => {
            let found = element::name(tensor.data_type);
            return refuse(format!("holds {found}"), "convert it to float or int64");
        }
    };
    let count = shape
        .iter()
        .fold(1usize, |count, &dim| count.saturating_mul(dim));
    let found = match &data {
        Data::Floats(values) => values.len(),
        Data::Ints(values) => values.len(),
    };
    if count != found {
        return refuse(
            format!("has {found} elements for {shape:?}"),
            "check the model",
        );
    }
    Ok(Known {
        name: tensor.name.clone(),
        shape,
        data,
    })
}

/// The elements; `None` for types that aren't read.
fn elements(tensor: &proto::Tensor) -> Option<Data> {
    let raw = tensor.raw_data.as_deref();
    let ints = |values: &[i32]| values.iter().map(|&v| i64::from(v)).collect();
    Some(match (tensor.data_type, raw) {
        (element::FLOAT, Some(raw)) => {
            let values = raw.as_chunks::<4>().0.iter();
            Data::Floats(values.map(|bytes| f32::from_le_bytes(*bytes)).collect())
        }
        (element::FLOAT, None) => Data::Floats(tensor.float_data.clone()),
        (element::INT64, Some(raw)) => {
            let values = raw.as_chunks::<8>().0.iter();
            Data::Ints(values.map(|bytes| i64::from_le_bytes(*bytes)).collect())
        }
        (element::INT64, None) => Data::Ints(tensor.int64_data.clone()),
        (element::INT32, Some(raw)) => {
            let values = raw.as_chunks::<4>().0.iter();
            Data::Ints(
                values
                    .map(|bytes| i32::from_le_bytes(*bytes).into())
                    .collect(),
            )
        }
        (element::BOOL | element::UINT8, Some(raw)) => {
            Data::Ints(raw.iter().map(|&byte| byte.into()).collect())
        }
        (element::INT32 | element::BOOL | element::UINT8, None) => {
            Data::Ints(ints(&tensor.int32_data))
        }
        _ => return None,
    })
}

pub(super) fn constant(_: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    if let Some(tensor) = call.attribute("value").and_then(|a| a.t.as_ref()) {
        let mut known = of_tensor(tensor)?;
        known.name = String::new();
        if matches!(&known.data, Data::Floats(values) if values.len() > MANY) {
            known.name.clone_from(&call.name);
        }
        return Ok(vec![Value::Constant(Rc::new(known))]);
    }
    if let Some(attribute) = call.attribute("value_float") {
        return Ok(known(
            Vec::new(),
            Data::Floats(vec![attribute.f.unwrap_or_default()]),
        ));
    }
    if let Some(attribute) = call.attribute("value_floats") {
        let values = attribute.floats.clone();
        return Ok(known(vec![values.len()], Data::Floats(values)));
    }
    if let Some(attribute) = call.attribute("value_int") {
        return Ok(known(
            Vec::new(),
            Data::Ints(vec![attribute.i.unwrap_or_default()]),
        ));
    }
    if let Some(attribute) = call.attribute("value_ints") {
        let values = attribute.ints.clone();
        return Ok(known(vec![values.len()], Data::Ints(values)));
    }
    Err(call.refuse("holds no tensor of numbers", "give `value`"))
}

pub(super) fn of_shape(_: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let Some(shape) = call.known_ints(0, "shape")? else {
        return Err(call.refuse("has no shape", "give it"));
    };
    let shape = call.sizes(&shape, "the shape")?;
    let count = shape
        .iter()
        .fold(1usize, |count, &dim| count.saturating_mul(dim));
    if count > MOST_ELEMENTS {
        let problem = format!("makes a constant of {count} elements");
        return Err(call.refuse(problem, "expand a scalar instead"));
    }
    let value = call.attribute("value").and_then(|a| a.t.as_ref());
    let value = value.map(of_tensor).transpose()?;
    let data = match value.map(|value| value.data) {
        None => Data::Floats(vec![0.0; count]),
        Some(Data::Floats(values)) => {
            Data::Floats(vec![values.first().copied().unwrap_or(0.0); count])
        }
        Some(Data::Ints(values)) => Data::Ints(vec![values.first().copied().unwrap_or(0); count]),
    };
    Ok(known(shape, data))
}

pub(super) fn shape(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let shape = reader.shape_of(&call.input(0)?)?;
    let rank = shape.len() as i64;
    // Unlike an axis, either may lie outside.
    let bound = |at: i64| if at < 0 { at.saturating_add(rank) } else { at }.clamp(0, rank) as usize;
    let (start, end) = (bound(call.int("start", 0)), bound(call.int("end", rank)));
    let part = shape.get(start..end.max(start)).unwrap_or(&[]);
    let values: Vec<i64> = part.iter().map(|&size| size as i64).collect();
    Ok(known(vec![values.len()], Data::Ints(values)))
}

/// Floats stay what they are, and known numbers become others.
pub(super) fn cast(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let to = call.int("to", 0) as i32;
    call.ignore("saturate");
    call.ignore("round_mode");
    let input = call.input(0)?;
    let refuse = |call: &Call<'_>| {
        let problem = format!("converts to {}", element::name(to));
        Err(call.refuse(problem, "only float is computed with"))
    };
    let Value::Constant(value) = &input else {
        let id = reader.tensor(&input)?;
        let is_float = reader.ty(id).dtype == tallow_graph::DType::F32;
        return match is_float && to == element::FLOAT {
            true => Ok(vec![input]),
            false => refuse(call),
        };
    };
    let data = match (&value.data, to) {
        (Data::Floats(values), element::FLOAT) => Data::Floats(values.clone()),
        (Data::Ints(values), element::FLOAT) => {
            Data::Floats(values.iter().map(|&v| v as f32).collect())
        }
        (Data::Ints(values), element::INT64 | element::INT32) => Data::Ints(values.clone()),
        (Data::Floats(values), element::INT64 | element::INT32) => {
            Data::Ints(values.iter().map(|&v| v as i64).collect())
        }
        _ => return refuse(call),
    };
    Ok(known(value.shape.clone(), data))
}

/// Arithmetic on known integers of equal length, or with one that is a single number.
pub(super) fn arithmetic(
    call: &Call<'_>,
    f: fn(i64, i64) -> Option<i64>,
) -> Result<Option<Vec<Value>>> {
    let (Some(Some(Value::Constant(a))), Some(Some(Value::Constant(b)))) =
        (call.inputs.first(), call.inputs.get(1))
    else {
        return Ok(None);
    };
    let (Data::Ints(x), Data::Ints(y)) = (&a.data, &b.data) else {
        return Ok(None);
    };
    let shape = if x.len() >= y.len() {
        &a.shape
    } else {
        &b.shape
    };
    let at = |values: &[i64], index: usize| match values.len() {
        1 => values.first().copied(),
        _ => values.get(index).copied(),
    };
    let fits = x.len() == y.len() || x.len() == 1 || y.len() == 1;
    let values = (0..x.len().max(y.len())).map(|i| f(at(x, i)?, at(y, i)?));
    match values.collect::<Option<Vec<i64>>>().filter(|_| fits) {
        Some(values) => Ok(Some(known(shape.clone(), Data::Ints(values)))),
        None => Err(call.refuse("can't be computed from these integers", "check the model")),
    }
}
