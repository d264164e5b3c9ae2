//! Further runs that tell a constant from a value that follows from inputs or parameters behind candle's back.

use std::collections::BTreeMap;

use candle_core::{DType, Tensor, Var};
use tallow_graph::{NodeId, Op};

use super::breaks::{Break, Found, common_module, describe_node, describe_reader};
use super::recorder::{Reader, Recorder};
use super::{Capture, Run, restore};
use crate::Result;
use crate::rng::{self, Purpose, Stream};

/// Runs on other elements of the same types. Constants must not change, nor variables be made anew, nor the operations
/// be others.
pub(super) fn other_inputs(
    capture: &Capture<'_>,
    first: &Recorder,
    examples: &[Var],
    forced: &BTreeMap<usize, Break>,
    run: &mut impl Run,
) -> Result<Vec<Found>> {
    let changed: Vec<Var> = examples
        .iter()
        .enumerate()
        .map(|(i, var)| Ok(Var::from_tensor(&other_elements(var, i as u64)?)?))
        .collect::<Result<_>>()?;
    let second = capture.record(&changed, forced, run)?;
    let mut breaks = changed_constants(first, &second, "the input");
    breaks.extend(fresh_variables(first, &second));
    breaks.extend(changed_operations(first, &second));
    Ok(breaks)
}

/// Runs with other values of the parameters. Constants must not change. Without constants there is nothing to ask.
pub(super) fn other_parameters(
    capture: &Capture<'_>,
    first: &Recorder,
    examples: &[Var],
    forced: &BTreeMap<usize, Break>,
    run: &mut impl Run,
) -> Result<Vec<Found>> {
    if first.constants.is_empty() {
        return Ok(Vec::new());
    }
    let guard = restore::Guard::of(parameters(capture, first)?)?;
    for (i, (var, value)) in guard.values().iter().enumerate() {
        // Stays positive where it was (running variances), and moves zeros.
        let noise = noise(value, i as u64, |stream| 0.0625 * stream.uniform())?;
        var.set(&((value * 1.25)? + noise)?)?;
    }
    let third = capture.record(examples, forced, run)?;
    drop(guard);
    Ok(changed_constants(first, &third, "a parameter"))
}

/// All floating-point variables that the model may read.
fn parameters(capture: &Capture<'_>, first: &Recorder) -> Result<Vec<Var>> {
    let mut vars: Vec<Var> = match capture.params {
        Some(params) => params.iter().map(|entry| entry.var).collect(),
        None => Vec::new(),
    };
    for (node, _) in first.graph.params() {
        let value = &first.values[node.id.0];
        if !vars.iter().any(|var| var.id() == value.id()) {
            vars.push(Var::from_tensor(value)?);
        }
    }
    vars.retain(|var| var.dtype().is_float());
    Ok(vars)
}

fn changed_constants(first: &Recorder, other: &Recorder, of: &str) -> Vec<Found> {
    let pairs = first.constants.iter().zip(&other.constants);
    let changed = pairs.filter(|((a, _), (b, _))| {
        let op = |run: &Recorder, id| run.graph.node(id).map(|node| node.op.clone());
        op(first, *a) != op(other, *b)
    });
    changed
        .map(|((id, reader), _)| {
            let (operation, remedy) = hidden_operation(first, *id);
            let reason = format!(
                "it changes with {of}, but candle's tape doesn't tell how: a constant in the graph would be wrong"
            );
            (
                *id,
                broken(first, *id, reader, operation, reason, remedy),
            )
        })
        .collect()
}

/// `detach` shares the memory of what it detaches; everything else that leaves the tape copies.
fn hidden_operation(run: &Recorder, id: NodeId) -> (String, String) {
    let value = &run.values[id.0];
    let detached = run.graph.nodes.iter().find(|node| {
        node.id != id
            && node.op.name() != "constant"
            && shares_storage(&run.values[node.id.0], value)
    });
    match detached {
        Some(node) => (
            format!("detach of {}", describe_node(run, node.id)),
            "the value itself, without `detach`; graphs have no operation that stops gradients".to_string(),
        ),
        None => (
            "a raw operation".to_string(),
            "operations of tallow_tensor::ops from the inputs on; `detach`, `argmax`, comparisons and reading elements \
             (`to_vec1`, `to_scalar`) leave the tape"
                .to_string(),
        ),
    }
}

fn shares_storage(a: &Tensor, b: &Tensor) -> bool {
    let ((a, _), (b, _)) = (a.storage_and_layout(), b.storage_and_layout());
    std::ptr::eq(&*a, &*b)
}

/// A `Var` made while the model runs is no parameter, and cuts the tape besides.
fn fresh_variables(first: &Recorder, second: &Recorder) -> Vec<Found> {
    let pairs = first.unnamed.iter().zip(&second.unnamed);
    let fresh = pairs.filter(|((a, _), (b, _))| first.values[a.0].id() != second.values[b.0].id());
    fresh
        .map(|((id, reader), _)| {
            let reason = "it is a variable that the model makes anew in every run".to_string();
            let remedy =
                "the tensor itself, or make the variable once, when the model is built".to_string();
            let operation = "Var::from_tensor".to_string();
            (*id, broken(first, *id, reader, operation, reason, remedy))
        })
        .collect()
}

/// The first place where the two runs did different things.
fn changed_operations(first: &Recorder, second: &Recorder) -> Option<Found> {
    let same = |a: &tallow_graph::Node, b: &tallow_graph::Node| {
        let constants = matches!((&a.op, &b.op), (Op::Constant(_), Op::Constant(_)));
        a.inputs == b.inputs && a.output == b.output && (constants || a.op == b.op)
    };
    let (a, b) = (&first.graph.nodes, &second.graph.nodes);
    let place = a.iter().zip(b).position(|(a, b)| !same(a, b));
    let place = place.or((a.len() != b.len()).then_some(a.len().min(b.len())))?;
    let node = a.get(place).or(b.get(place))?;
    let name = |nodes: &[tallow_graph::Node]| {
        let node = nodes.get(place);
        node.map_or("nothing more", |node| node.op.name())
    };
    let found = Break {
        module: node.scope.clone(),
        operation: "a branch on a value".to_string(),
        value: node.output.clone(),
        reader: format!("{} as the next operation", node.op.name()),
        after: place
            .checked_sub(1)
            .map(|last| describe_node(first, NodeId(last))),
        reason: format!(
            "with other inputs of the same shape the model did {} here, not {}",
            name(b),
            name(a)
        ),
        remedy:
            "the same operations for every input; branch on shapes or settings, not on elements"
                .to_string(),
    };
    Some((NodeId(place), found))
}

fn broken(
    run: &Recorder,
    id: NodeId,
    reader: &Reader,
    operation: String,
    reason: String,
    remedy: String,
) -> Break {
    let operations = run.graph.nodes[..id.0].iter().rev();
    let mut before = operations.filter(|node| !node.inputs.is_empty());
    let after = before.next();
    let scope = after.map_or(reader.scope.as_str(), |node| node.scope.as_str());
    Break {
        module: common_module(scope, &reader.scope),
        operation,
        value: run.graph.nodes[id.0].output.clone(),
        reader: describe_reader(reader),
        after: after.map(|node| describe_node(run, node.id)),
        reason,
        remedy,
    }
}

/// Other elements of the same shape, type and range.
fn other_elements(value: &Tensor, index: u64) -> Result<Tensor> {
    let value = value.detach();
    if value.elem_count() == 0 {
        return Ok(value);
    }
    if value.dtype().is_float() {
        let wide = value.to_dtype(DType::F64)?.flatten_all()?;
        let mean = wide.mean_all()?;
        let variance = wide.broadcast_sub(&mean)?.sqr()?.mean_all()?;
        let variance = variance.to_scalar::<f64>()?;
        let spread = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        let noise = noise(&value, index, |stream| spread * stream.normal())?;
        return Ok((value + noise)?);
    }
    let whole = value.to_dtype(DType::I64)?;
    let elements = whole.flatten_all()?.to_vec1::<i64>()?;
    let least = elements.iter().copied().min().unwrap_or(0);
    let greatest = elements.iter().copied().max().unwrap_or(0);
    let mirrored: Vec<i64> = elements
        .iter()
        .map(|v| least.wrapping_add(greatest).wrapping_sub(*v))
        .collect();
    let mirrored = Tensor::from_vec(mirrored, value.shape(), value.device())?;
    Ok(mirrored.to_dtype(value.dtype())?)
}

fn noise(like: &Tensor, index: u64, mut draw: impl FnMut(&mut Stream) -> f64) -> Result<Tensor> {
    let key = rng::key(rng::DEFAULT_SEED, Purpose::Synthetic, 0, index);
    let mut stream = Stream::new(key);
    let elements: Vec<f64> = (0..like.elem_count()).map(|_| draw(&mut stream)).collect();
    let noise = Tensor::from_vec(elements, like.shape(), &candle_core::Device::Cpu)?;
    Ok(noise.to_dtype(like.dtype())?.to_device(like.device())?)
}
