//! Operators on each element by itself.

use tallow_graph::op::{AddScalar, Gelu, MulScalar};
use tallow_graph::{NodeId, Op};

use super::constant::arithmetic;
use super::{Call, Data, Reader, Value, one};
use crate::Result;

/// How far a constant of GELU's formula may be from what it stands for.
const NEAR: f64 = 1e-6;

fn near(value: f64, to: f64) -> bool {
    (value - to).abs() <= NEAR
}

fn unary(reader: &mut Reader, call: &mut Call<'_>, op: Op) -> Result<Vec<Value>> {
    let x = call.tensor(reader, 0)?;
    one(reader.push(op, &[x])?)
}

fn times(reader: &mut Reader, x: NodeId, value: f64) -> Result<NodeId> {
    reader.push(Op::MulScalar(MulScalar { value }), &[x])
}

/// The number that an input is, if it is one that is known and changes no shape.
fn number(reader: &Reader, value: &Value, other: &Value) -> Result<Option<f64>> {
    let Value::Constant(known) = value else {
        return Ok(None);
    };
    if matches!(other, Value::Constant(_)) {
        return Ok(None);
    }
    let Data::Floats(values) = &known.data else {
        return Ok(None);
    };
    let rank = match other {
        Value::Node(id) => reader.dims(*id).len(),
        _ => 1,
    };
    let fits = values.len() == 1 && known.shape.len() <= rank;
    Ok(values.first().filter(|_| fits).map(|&v| f64::from(v)))
}

pub(super) fn add(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    if let Some(known) = arithmetic(call, i64::checked_add)? {
        return Ok(known);
    }
    let (a, b) = (call.input(0)?, call.input(1)?);
    for (x, value) in [(&a, &b), (&b, &a)] {
        let Some(value) = number(reader, value, x)? else {
            continue;
        };
        if let Value::Erf(of) = x
            && near(value, 1.0)
        {
            return Ok(vec![Value::ErfPlusOne(*of)]);
        }
        let x = reader.tensor(x)?;
        return one(reader.push(Op::AddScalar(AddScalar { value }), &[x])?);
    }
    binary(reader, call, Op::Add)
}

pub(super) fn sub(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    match arithmetic(call, i64::checked_sub)? {
        Some(known) => Ok(known),
        None => binary(reader, call, Op::Sub),
    }
}

pub(super) fn mul(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    if let Some(known) = arithmetic(call, i64::checked_mul)? {
        return Ok(known);
    }
    let (a, b) = (call.input(0)?, call.input(1)?);
    for (x, value) in [(&a, &b), (&b, &a)] {
        if let Some(gelu) = part_of_gelu(reader, x, value)? {
            return Ok(vec![gelu]);
        }
        let Some(value) = number(reader, value, x)? else {
            continue;
        };
        if let Value::TwiceGelu(of) = x
            && near(value, 0.5)
        {
            return one(reader.push(Op::Gelu(Gelu { approximate: false }), &[*of])?);
        }
        let x = reader.tensor(x)?;
        let y = times(reader, x, value)?;
        reader.scaled.insert(y, (x, value));
        return one(y);
    }
    binary(reader, call, Op::Mul)
}

/// `x · (1 + erf(x / √2))`, with half of x or all of it.
fn part_of_gelu(reader: &mut Reader, x: &Value, factor: &Value) -> Result<Option<Value>> {
    let (Value::Node(x), Value::ErfPlusOne(of)) = (x, factor) else {
        return Ok(None);
    };
    if x == of {
        return Ok(Some(Value::TwiceGelu(*of)));
    }
    let half = reader.scaled.get(x).copied();
    if half.is_some_and(|(whole, value)| whole == *of && near(value, 0.5)) {
        let gelu = reader.push(Op::Gelu(Gelu { approximate: false }), &[*of])?;
        return Ok(Some(Value::Node(gelu)));
    }
    Ok(None)
}

pub(super) fn div(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let whole = |a: i64, b: i64| a.checked_div(b);
    if let Some(known) = arithmetic(call, whole)? {
        return Ok(known);
    }
    let (a, b) = (call.input(0)?, call.input(1)?);
    let divisor = number(reader, &b, &a)?;
    let outputs = binary(reader, call, Op::Div)?;
    if let (Some(divisor), Value::Node(x), Some(Value::Node(y))) = (divisor, &a, outputs.first()) {
        reader.scaled.insert(*y, (*x, 1.0 / divisor));
    }
    Ok(outputs)
}

fn binary(reader: &mut Reader, call: &mut Call<'_>, op: Op) -> Result<Vec<Value>> {
    let inputs = [call.tensor(reader, 0)?, call.tensor(reader, 1)?];
    one(reader.push(op, &inputs)?)
}

pub(super) fn erf(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(reader, 0)?;
    match reader.scaled.get(&x).copied() {
        Some((of, factor)) if near(factor, std::f64::consts::FRAC_1_SQRT_2) => {
            Ok(vec![Value::Erf(of)])
        }
        _ => Err(call.refuse(
            "is read as a part of GELU alone",
            "use Gelu, or its formula x / √2, Erf, + 1, · x, · 0.5",
        )),
    }
}

pub(super) fn gelu(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let approximate = match call.text("approximate", "none").as_str() {
        "none" => false,
        "tanh" => true,
        other => return Err(call.refuse(format!("has approximate = {other}"), "use none or tanh")),
    };
    unary(reader, call, Op::Gelu(Gelu { approximate }))
}

pub(super) fn identity(_: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    Ok(vec![call.input(0)?])
}

/// In inference it does nothing.
pub(super) fn dropout(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    call.ignore("ratio");
    call.ignore("seed");
    let training = call.known_ints(2, "training_mode")?;
    if training.is_some_and(|training| training != [0]) {
        return Err(call.refuse("is in training", "export the model in evaluation mode"));
    }
    identity(reader, call)
}

pub(super) fn relu(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    unary(reader, call, Op::Relu)
}

pub(super) fn sigmoid(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    unary(reader, call, Op::Sigmoid)
}

pub(super) fn tanh(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    unary(reader, call, Op::Tanh)
}

pub(super) fn hard_swish(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    unary(reader, call, Op::Hardswish)
}

pub(super) fn neg(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    unary(reader, call, Op::MulScalar(MulScalar { value: -1.0 }))
}

/// `max(x, 0)` and `max(-x, 0)`.
fn halves(reader: &mut Reader, x: NodeId) -> Result<(NodeId, NodeId)> {
    let positive = reader.push(Op::Relu, &[x])?;
    let turned = times(reader, x, -1.0)?;
    let negative = reader.push(Op::Relu, &[turned])?;
    Ok((positive, negative))
}

pub(super) fn abs(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(reader, 0)?;
    let (positive, negative) = halves(reader, x)?;
    one(reader.push(Op::Add, &[positive, negative])?)
}

pub(super) fn leaky_relu(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let slope = f64::from(call.float("alpha", 0.01));
    let x = call.tensor(reader, 0)?;
    let (positive, negative) = halves(reader, x)?;
    let negative = times(reader, negative, slope)?;
    one(reader.push(Op::Sub, &[positive, negative])?)
}

pub(super) fn prelu(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let (x, slope) = (call.tensor(reader, 0)?, call.tensor(reader, 1)?);
    let (positive, negative) = halves(reader, x)?;
    let negative = reader.push(Op::Mul, &[negative, slope])?;
    one(reader.push(Op::Sub, &[positive, negative])?)
}

/// `max(0, min(1, alpha · x + beta))`.
pub(super) fn hard_sigmoid(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let alpha = f64::from(call.float("alpha", 0.2));
    let beta = f64::from(call.float("beta", 0.5));
    let x = call.tensor(reader, 0)?;
    let x = times(reader, x, 6.0 * alpha)?;
    let x = reader.push(Op::AddScalar(AddScalar { value: 6.0 * beta }), &[x])?;
    let x = reader.push(Op::Relu6, &[x])?;
    one(times(reader, x, 1.0 / 6.0)?)
}

pub(super) fn swish(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let alpha = call.float("alpha", 1.0);
    let x = call.tensor(reader, 0)?;
    if alpha == 1.0 {
        return one(reader.push(Op::Silu, &[x])?);
    }
    let gate = times(reader, x, alpha.into())?;
    let gate = reader.push(Op::Sigmoid, &[gate])?;
    one(reader.push(Op::Mul, &[x, gate])?)
}

/// Bounds from zero upwards.
pub(super) fn clip(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let bound = |call: &mut Call<'_>, name: &str, index: usize, none: f32| -> Result<f32> {
        let attribute = call.float(name, none);
        match call.known(index, name)?.as_deref().map(|known| &known.data) {
            Some(Data::Floats(values)) if values.len() == 1 => Ok(values[0]),
            Some(_) => Err(call.refuse(format!("has a {name} that is no float"), "give a scalar")),
            None => Ok(attribute),
        }
    };
    let low = bound(call, "min", 1, f32::MIN)?;
    let high = bound(call, "max", 2, f32::MAX)?;
    let x = call.tensor(reader, 0)?;
    let unbounded = [low <= f32::MIN, high >= f32::MAX];
    one(match (unbounded, low, high) {
        ([true, true], ..) => return identity(reader, call),
        ([false, true], 0.0, _) => reader.push(Op::Relu, &[x])?,
        ([false, false], 0.0, 6.0) => reader.push(Op::Relu6, &[x])?,
        ([false, false], 0.0, high) if high > 0.0 => {
            let x = times(reader, x, 6.0 / f64::from(high))?;
            let x = reader.push(Op::Relu6, &[x])?;
            times(reader, x, f64::from(high) / 6.0)?
        }
        _ => {
            let problem = format!("has the bounds {low} and {high}");
            return Err(call.refuse(problem, "it is read with a lower bound of 0 alone"));
        }
    })
}

pub(super) fn sum(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    one(total(reader, call)?)
}

pub(super) fn mean(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let total = total(reader, call)?;
    one(times(reader, total, 1.0 / call.inputs.len() as f64)?)
}

fn total(reader: &mut Reader, call: &Call<'_>) -> Result<NodeId> {
    let inputs = call.tensors(reader)?;
    let Some((&first, rest)) = inputs.split_first() else {
        return Err(call.refuse("has no input", "give at least one"));
    };
    rest.iter()
        .try_fold(first, |sum, &x| reader.push(Op::Add, &[sum, x]))
}
