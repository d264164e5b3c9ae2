//! What a profiler sees of operations: [`tracing`] spans of target `tallow`, with fields that say what ran.
//!
//! | span | fields | is |
//! |---|---|---|
//! | `module` | `module` | a [`crate::scope`] |
//! | `op` | `op`, `module`, `shape`, `flops`, `bytes` | an operation of [`ops`](crate::ops), eagerly |
//! | `op_backward` | the same | its gradient, where a kernel of ours computes it |
//! | `update` | `op`, `shape`, `flops`, `bytes` | the update of an optimizer |
//!
//! `flops` are those of [`Op::flops`]: a multiply-add counts as two. `bytes` are those of what is read and written, once
//! each. Events of target `tallow::memory` say when an output begins and ends to be on candle's tape (`hold`, `free`).
//!
//! As long as nobody subscribes, all of this is one look at a static a call.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tallow_graph::op::Grad;
use tallow_graph::{Op, TensorType, types};
use tracing::span::EnteredSpan;
use tracing::{Level, trace, trace_span};

use crate::scope;

/// Whether anybody records operations at present.
#[inline]
pub fn is_on() -> bool {
    tracing::enabled!(target: "tallow", Level::TRACE)
}

/// One eager operation: what its gradient needs to be named.
#[derive(Debug)]
pub(crate) struct Call {
    op: Op,
    inputs: Vec<TensorType>,
    output: TensorType,
    module: String,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Call>>> = const { RefCell::new(None) };
}

/// The operation is over when this is dropped.
pub(crate) struct Operation {
    outer: Option<Arc<Call>>,
    _span: EnteredSpan,
}

impl Drop for Operation {
    fn drop(&mut self) {
        let outer = self.outer.take();
        CURRENT.with_borrow_mut(|current| *current = outer);
    }
}

/// Begins the span of an operation, if anybody records.
#[inline]
pub(crate) fn operation(op: &Op, inputs: &[TensorType], output: &TensorType) -> Option<Operation> {
    is_on().then(|| begin(op, inputs, output))
}

#[cold]
fn begin(op: &Op, inputs: &[TensorType], output: &TensorType) -> Operation {
    let module = scope::path();
    let span = trace_span!(
        target: "tallow",
        "op",
        op = op.name(),
        module = module.as_str(),
        shape = types::signature(inputs, output).as_str(),
        flops = op.flops(inputs, output),
        bytes = bytes(inputs) + output.bytes(),
    );
    let call = Arc::new(Call {
        op: op.clone(),
        inputs: inputs.to_vec(),
        output: output.clone(),
        module,
    });
    Operation {
        outer: CURRENT.with_borrow_mut(|current| current.replace(call)),
        _span: span.entered(),
    }
}

fn bytes<'a>(types: impl IntoIterator<Item = &'a TensorType>) -> u64 {
    types
        .into_iter()
        .map(TensorType::bytes)
        .fold(0, u64::saturating_add)
}

/// An output on the tape: lives as long as the tape's node, and knows what to call its gradient.
#[derive(Debug)]
pub(crate) struct Held {
    call: Arc<Call>,
    number: u64,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Held {
    /// The operation that is running, if anybody records.
    #[inline]
    pub(crate) fn new() -> Option<Self> {
        if !is_on() {
            return None;
        }
        // One kernel stands for the operation, where it is made of several.
        let call = CURRENT.with_borrow_mut(Option::take)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        trace!(
            target: "tallow::memory",
            hold = number,
            bytes = call.output.bytes(),
            op = call.op.name(),
            module = call.module.as_str(),
        );
        Some(Self { call, number })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        trace!(target: "tallow::memory", free = self.number);
    }
}

/// Begins the span of a gradient, if anybody records; `needed` says with respect to which inputs.
#[inline]
pub(crate) fn backward(
    name: &'static str,
    held: Option<&Held>,
    needed: &[bool],
) -> Option<EnteredSpan> {
    is_on().then(|| begin_backward(name, held, needed))
}

#[cold]
fn begin_backward(name: &'static str, held: Option<&Held>, needed: &[bool]) -> EnteredSpan {
    let Some(Held { call, .. }) = held else {
        // The forward pass wasn't recorded.
        return trace_span!(target: "tallow", "op_backward", op = name).entered();
    };
    let wrt = || (0..call.inputs.len()).filter(|&index| needed.get(index) == Some(&true));
    let gradients = bytes(wrt().map(|index| &call.inputs[index]));
    trace_span!(
        target: "tallow",
        "op_backward",
        op = format!("{}_backward", call.op.name()).as_str(),
        module = call.module.as_str(),
        shape = types::signature(&call.inputs, &call.output).as_str(),
        flops = wrt().map(|index| gradient_flops(call, index)).fold(0, u64::saturating_add),
        bytes = (bytes(&call.inputs) + call.output.bytes()).saturating_add(gradients),
    )
    .entered()
}

/// As the compiler's graph counts the gradient, where it has one operation for it; otherwise two an element.
fn gradient_flops(call: &Call, wrt: usize) -> u64 {
    let output = &call.inputs[wrt];
    if Grad::saved(&call.op, wrt).is_none() {
        return match (&call.op, call.op.macs(&call.inputs, &call.output)) {
            (Op::MatMul, macs) => macs.saturating_mul(2),
            // Four products for three gradients, two of them of the size of each of the forward pass's.
            (Op::Attention(_), macs) => macs.saturating_mul(4) / 3,
            _ => output.elements().saturating_mul(2),
        };
    }
    let gradient = Op::Grad(Grad {
        of: Box::new(call.op.clone()),
        wrt,
        inputs: call.inputs.clone(),
        add: false,
    });
    gradient.flops(&[], output)
}

/// Begins the span of an optimizer's update of so many parameters in so many tensors; `state` tensors are remembered of
/// each.
#[inline]
pub(crate) fn update(
    name: &'static str,
    elements: impl FnOnce() -> (usize, usize),
    state: usize,
    flops: u64,
) -> Option<EnteredSpan> {
    if !is_on() {
        return None;
    }
    let (tensors, elements) = elements();
    let (elements, touched) = (elements as u64, 3 + 2 * state as u64);
    let span = trace_span!(
        target: "tallow",
        "update",
        op = name,
        shape = format!("{elements} parameters in {tensors} tensors").as_str(),
        flops = flops * elements,
        bytes = 4 * touched * elements,
    );
    Some(span.entered())
}
