//! Names the raw operation behind a graph break.
//!
//! candle doesn't show what is on its tape, but a break's value is at hand, and so are the values recorded before it:
//! the usual operations are applied to those, and where the elements agree the operation is named. Should two of them
//! agree, both are. This is only for the message; a graph is never made from it.

use candle_core::{DType, Result, Tensor};
use tallow_graph::NodeId;

use super::breaks::{Break, Found, common_module, describe_node, describe_reader};
use super::recorder::{Recorder, Unrecorded};
use crate::params::Params;

/// How many of the values recorded before a break are tried as its operands, and how many parameters.
const OPERANDS: usize = 8;
/// How many elements of an elementwise operation are compared.
const SAMPLE: usize = 4096;
/// Operations that need whole tensors are tried on at most this many elements.
const WHOLE: usize = 1 << 20;

/// All breaks that candle's tape shows, in the order in which they were found.
pub(super) fn raw_operations(run: &Recorder, params: Option<&Params>) -> Vec<Found> {
    let found = run.unrecorded.iter();
    found
        .map(|broken| (broken.node, describe(run, broken, params)))
        .collect()
}

/// What a break was, as far as its elements tell.
pub(super) fn describe(run: &Recorder, broken: &Unrecorded, params: Option<&Params>) -> Break {
    let after = broken.after.and_then(|id| run.graph.node(id));
    let scope = after.map_or(broken.reader.scope.as_str(), |node| node.scope.as_str());
    let reader_scope = match broken.reader.operation {
        Some(_) => broken.reader.scope.as_str(),
        None => "",
    };
    let module = common_module(scope, reader_scope);
    let operands = operands(run, broken, params, &module);
    let guesses = guesses(&broken.value, &operands);
    let (operation, remedy) = match guesses.as_slice() {
        [] => ("a raw operation".to_string(), usual_remedies(run, broken)),
        some => {
            let join = |part: fn(&Guess) -> &String| {
                let parts: Vec<&str> = some.iter().map(|guess| part(guess).as_str()).collect();
                parts.join(", or ")
            };
            (join(|g| &g.operation), join(|g| &g.remedy))
        }
    };
    let value = run.type_of(broken.node).cloned();
    Break {
        module,
        operation,
        value: value.unwrap_or_else(|| tallow_graph::TensorType::f32(broken.value.dims())),
        reader: describe_reader(&broken.reader),
        after: after.map(|node| describe_node(run, node.id)),
        reason: "candle made it from an input or a parameter, outside tallow_tensor::ops, so it was not recorded"
            .to_string(),
        remedy,
    }
}

/// What to try when nothing is recognised: operations that keep the shape, the elements, or neither.
fn usual_remedies(run: &Recorder, broken: &Unrecorded) -> String {
    let before = broken.after.map(|id| &run.values[id.0]);
    let candidates = match before {
        Some(value) if value.dims() == broken.value.dims() => {
            "relu, relu6, gelu, silu, sigmoid, tanh, hardswish, add, sub, mul, div, add_scalar, mul_scalar, softmax, \
             batch_norm, layer_norm, group_norm, dropout"
        }
        Some(value) if value.elem_count() == broken.value.elem_count() => {
            "reshape, flatten, permute, transpose"
        }
        _ => {
            "linear, conv2d, matmul, mean, sum, slice, concat, max_pool2d, avg_pool2d, adaptive_avg_pool2d, interpolate, \
             embedding, attention"
        }
    };
    format!("an operation of tallow_tensor::ops; those that give such a shape: {candidates}")
}

/// A value that the raw operation may have read.
struct Operand {
    label: String,
    value: Tensor,
}

fn operands(
    run: &Recorder,
    broken: &Unrecorded,
    params: Option<&Params>,
    module: &str,
) -> Vec<Operand> {
    let recorded = (0..broken.node.0).rev().take(OPERANDS).map(|i| Operand {
        label: describe_node(run, NodeId(i)),
        value: run.values[i].detach(),
    });
    let known = |entry: &crate::params::Entry| {
        let id = entry.var.id();
        run.values.iter().take(broken.node.0).any(|v| v.id() == id)
    };
    let of_module = params
        .into_iter()
        .flatten()
        .filter(|entry| entry.name.starts_with(module) && !known(entry))
        .take(OPERANDS)
        .map(|entry| Operand {
            label: format!("parameter {}", entry.name),
            value: entry.var.as_detached_tensor(),
        });
    recorded.chain(of_module).collect()
}

/// An operation that gives the value.
struct Guess {
    operation: String,
    remedy: String,
}

impl Guess {
    fn new(operation: String, remedy: impl Into<String>) -> Self {
        Self {
            operation,
            remedy: remedy.into(),
        }
    }
}

/// The operations of the nearest operand that explains the value alone, or else of the nearest pair that does.
fn guesses(value: &Tensor, operands: &[Operand]) -> Vec<Guess> {
    // What fails on some operand doesn't explain the value.
    let alone = operands
        .iter()
        .map(|x| of_one(value, x).unwrap_or_default());
    let mut pairs = operands
        .iter()
        .flat_map(|a| operands.iter().map(move |b| (a, b)))
        .map(|(a, b)| of_two(value, a, b).unwrap_or_default());
    let mut alone = alone.filter(|guesses| !guesses.is_empty());
    alone
        .next()
        .or_else(|| pairs.find(|guesses| !guesses.is_empty()))
        .unwrap_or_default()
}

fn of_one(value: &Tensor, x: &Operand) -> Result<Vec<Guess>> {
    let mut found = Vec::new();
    if value.elem_count() == x.value.elem_count() {
        elementwise(value, x, &mut found)?;
        if same_elements(value, &x.value)? {
            found = vec![moved(value, x)];
        }
    }
    if x.value.elem_count() <= WHOLE && found.is_empty() {
        permutations(value, x, &mut found)?;
        along_dimensions(value, x, &mut found)?;
        ranges(value, x, &mut found)?;
    }
    Ok(found)
}

/// A candle function of one tensor, and what to write for it.
type Unary = (&'static str, &'static str, fn(&Tensor) -> Result<Tensor>);

const NOT_THERE: &str = "operations of tallow_tensor::ops; none of them computes this one alone";

const UNARY: &[Unary] = &[
    ("relu", "ops::relu(xs)", Tensor::relu),
    ("relu6", "ops::relu6(xs)", |x| x.clamp(0.0, 6.0)),
    ("gelu", "ops::gelu(xs)", Tensor::gelu_erf),
    ("gelu_tanh", "ops::gelu_tanh(xs)", Tensor::gelu),
    ("silu", "ops::silu(xs)", Tensor::silu),
    ("sigmoid", "ops::sigmoid(xs)", candle_nn::ops::sigmoid),
    ("tanh", "ops::tanh(xs)", Tensor::tanh),
    ("hardswish", "ops::hardswish(xs)", |x| {
        (x * (x + 3.0)?.clamp(0.0, 6.0)?)? / 6.0
    }),
    ("sqr", "ops::mul(xs, xs)", Tensor::sqr),
    ("exp", NOT_THERE, Tensor::exp),
    ("log", NOT_THERE, Tensor::log),
    ("sqrt", NOT_THERE, Tensor::sqrt),
    ("abs", NOT_THERE, Tensor::abs),
    ("recip", NOT_THERE, Tensor::recip),
];

fn elementwise(value: &Tensor, x: &Operand, found: &mut Vec<Guess>) -> Result<()> {
    if value.dims() != x.value.dims() {
        return Ok(());
    }
    let (y, sample) = (sample(value)?, sample(&x.value)?);
    for (name, remedy, apply) in UNARY {
        if close(&y, &apply(&sample)?, value.dtype())? {
            found.push(Guess::new(format!("{name} of {}", x.label), *remedy));
        }
    }
    if found.is_empty() {
        affine(value, &y, &sample, x, found)?;
    }
    Ok(())
}

/// `x · a + b`, from the two elements that lie furthest apart.
fn affine(
    value: &Tensor,
    y: &Tensor,
    x: &Tensor,
    operand: &Operand,
    found: &mut Vec<Guess>,
) -> Result<()> {
    let (xs, ys) = (x.to_vec1::<f64>()?, y.to_vec1::<f64>()?);
    let order = |a: &(usize, &f64), b: &(usize, &f64)| a.1.total_cmp(b.1);
    let low = xs.iter().enumerate().min_by(order);
    let high = xs.iter().enumerate().max_by(order);
    let (Some((i, low)), Some((j, high))) = (low, high) else {
        return Ok(());
    };
    if high - low <= 0.0 {
        return Ok(());
    }
    let a = (ys[j] - ys[i]) / (high - low);
    let b = ys[i] - a * low;
    if a != 0.0 && close(y, &x.affine(a, b)?, value.dtype())? {
        found.push(Guess::new(
            format!(
                "arithmetic with numbers (x·{a:.4} + {b:.4}) of {}",
                operand.label
            ),
            "ops::mul_scalar(xs, a) and ops::add_scalar(xs, b)",
        ));
    }
    Ok(())
}

/// The same elements in the same order: a copy, another shape, or another type.
fn moved(value: &Tensor, x: &Operand) -> Guess {
    if value.dtype() != x.value.dtype() {
        return Guess::new(
            format!("to_dtype of {}", x.label),
            "a model in one element type; convert its input or its result outside",
        );
    }
    if value.dims() != x.value.dims() {
        return Guess::new(
            format!("reshape of {}", x.label),
            "ops::reshape(xs, shape) or ops::flatten(xs, start_dim)",
        );
    }
    Guess::new(
        format!("a copy of {}", x.label),
        "the value itself; operations take any layout, `contiguous` is not needed",
    )
}

fn permutations(value: &Tensor, x: &Operand, found: &mut Vec<Guess>) -> Result<()> {
    let rank = x.value.rank();
    if value.elem_count() != x.value.elem_count() || value.rank() != rank || rank > 4 {
        return Ok(());
    }
    for order in orders(rank) {
        let permuted = x.value.permute(order.clone())?;
        if permuted.dims() == value.dims() && same_elements(value, &permuted)? {
            found.push(Guess::new(
                format!("permute to {order:?} of {}", x.label),
                format!("ops::permute(xs, &{order:?}) or ops::transpose(xs, dim1, dim2)"),
            ));
            return Ok(());
        }
    }
    Ok(())
}

/// All orders of `0..rank` but the first.
fn orders(rank: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..rank {
        let longer = orders.iter().flat_map(|order: &Vec<usize>| {
            let rest = (0..rank).filter(|d| !order.contains(d));
            rest.map(|d| order.iter().copied().chain([d]).collect())
        });
        orders = longer.collect();
    }
    orders.retain(|order| !order.iter().copied().eq(0..rank));
    orders
}

/// Softmax along one dimension, and reductions over any set of them.
fn along_dimensions(value: &Tensor, x: &Operand, found: &mut Vec<Guess>) -> Result<()> {
    let (rank, wide) = (x.value.rank().min(4), x.value.to_dtype(DType::F64)?);
    if value.dims() == x.value.dims() {
        for dim in 0..rank {
            let softmax = candle_nn::ops::softmax(&wide, dim)?;
            for (name, result) in [("log_softmax", softmax.log()?), ("softmax", softmax)] {
                if close(value, &result, value.dtype())? {
                    let operation = format!("{name} of {}", x.label);
                    found.push(Guess::new(operation, format!("ops::{name}(xs, {dim})")));
                }
            }
        }
        return Ok(());
    }
    for set in 1..(1usize << rank) {
        let dims: Vec<usize> = (0..rank).filter(|d| set >> d & 1 == 1).collect();
        let results = [
            ("mean", wide.mean_keepdim(dims.clone())?),
            ("sum", wide.sum_keepdim(dims.clone())?),
        ];
        for (name, result) in results {
            if close(value, &result, value.dtype())? {
                let operation = format!("{name} of {}", x.label);
                let keep_dim = value.rank() == x.value.rank();
                let remedy = format!("ops::{name}(xs, &{dims:?}, {keep_dim})");
                found.push(Guess::new(operation, remedy));
            }
        }
    }
    Ok(())
}

/// A range of one dimension.
fn ranges(value: &Tensor, x: &Operand, found: &mut Vec<Guess>) -> Result<()> {
    let dropped = value.rank() + 1 == x.value.rank();
    if !dropped && value.rank() != x.value.rank() {
        return Ok(());
    }
    for (dim, &size) in x.value.dims().iter().enumerate() {
        let length = if dropped { 1 } else { value.dims()[dim] };
        for start in 0..=size.saturating_sub(length).min(SAMPLE) {
            if length >= size {
                break;
            }
            let cut = x.value.narrow(dim, start, length)?;
            if cut.elem_count() != value.elem_count() {
                break;
            }
            if same_elements(value, &cut)? {
                found.push(Guess::new(
                    format!("narrow of {}", x.label),
                    format!("ops::slice(xs, {dim}, {start}, {})", start + length),
                ));
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A candle function of two tensors, and what to write for it.
type Binary = (&'static str, fn(&Tensor, &Tensor) -> Result<Tensor>);

const BINARY: &[Binary] = &[
    ("add", Tensor::broadcast_add),
    ("sub", Tensor::broadcast_sub),
    ("mul", Tensor::broadcast_mul),
    ("div", Tensor::broadcast_div),
    ("matmul", Tensor::broadcast_matmul),
    ("linear", |x, w| x.broadcast_matmul(&w.t()?)),
];

fn of_two(value: &Tensor, a: &Operand, b: &Operand) -> Result<Vec<Guess>> {
    if a.value.elem_count().max(b.value.elem_count()) > WHOLE {
        return Ok(Vec::new());
    }
    let (x, y) = (a.value.to_dtype(DType::F64)?, b.value.to_dtype(DType::F64)?);
    for (name, apply) in BINARY {
        let Ok(result) = apply(&x, &y) else { continue };
        if result.dims() == value.dims() && close(value, &result, value.dtype())? {
            return Ok(vec![Guess::new(
                format!("{name} of {} and {}", a.label, b.label),
                match *name {
                    "linear" => "ops::linear(xs, weight, bias)".to_string(),
                    name => format!("ops::{name}(a, b)"),
                },
            )]);
        }
    }
    Ok(Vec::new())
}

/// The first elements as f64.
fn sample(value: &Tensor) -> Result<Tensor> {
    let flat = value.flatten_all()?;
    flat.narrow(0, 0, flat.elem_count().min(SAMPLE))?
        .to_dtype(DType::F64)
}

/// Whether all elements are equal, in row-major order.
fn same_elements(a: &Tensor, b: &Tensor) -> Result<bool> {
    let flat = |t: &Tensor| t.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>();
    Ok(flat(a)? == flat(b)?)
}

/// Whether all elements are equal up to the rounding of `dtype`, in row-major order.
fn close(a: &Tensor, b: &Tensor, dtype: DType) -> Result<bool> {
    if a.elem_count() != b.elem_count() {
        return Ok(false);
    }
    let tolerance = match dtype {
        DType::F16 | DType::BF16 => 1e-2,
        _ => 1e-5,
    };
    let flat = |t: &Tensor| t.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>();
    let near = |(x, y): (&f64, &f64)| (x - y).abs() <= tolerance * (1.0 + x.abs()) || x == y;
    Ok(flat(a)?.iter().zip(&flat(b)?).all(near))
}
