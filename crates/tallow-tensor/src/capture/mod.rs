//! A graph from a run of an ordinary candle model.
//!
//! The model is run on example inputs while a recorder is on; every operation of `ops` writes a node. Values are
//! known by their candle identity: what an operation reads must be an input, a parameter, a constant, or what another
//! recorded operation gave. Anything else was made by a raw candle operation, and is a *graph break*: it is reported
//! with its place and what to write instead, never guessed and never baked in.
//!
//! | a value that no recorded operation made | is |
//! |---|---|
//! | a `Var` | a parameter, named by [`Params`] or else by the module path and the input's role |
//! | on candle's tape (`track_op`) | a break: it follows from an input or a parameter through a raw operation |
//! | neither, equal when the model runs on other inputs and with other parameters | a constant |
//! | neither, but different then | a break: it follows from values behind candle's back (`detach`, `argmax`, `to_vec1`, ...) |
//!
//! The inputs are made `Var`s for the run, so that the tape tells what follows from them. A capture leaves parameters,
//! running statistics and the random state as they were.

use std::collections::{BTreeMap, HashMap};

use candle_core::{Tensor, Var};
use candle_nn::ModuleT;
use tallow_graph::Graph;
use tallow_graph::op::ParamKind;

use crate::opaque::OpaqueModule;
use crate::params::{Kind, Params};
use crate::{Error, Result, record};

mod breaks;
mod calls;
mod confirm;
mod identify;
mod recorder;
mod restore;

pub use breaks::Break;
use breaks::Found;
use calls::Calls;
pub(crate) use recorder::Recorder;

/// Captures a function of one tensor, such as a model's forward pass. The input is named `x`.
///
/// # Errors
/// [`Error::GraphBreaks`] with all breaks; what the function itself fails with.
pub fn capture(
    mut run: impl FnMut(&Tensor) -> candle_core::Result<Tensor>,
    example: &Tensor,
) -> Result<Graph> {
    Capture::new()
        .input("x", example)
        .run(|inputs| Ok(vec![run(&inputs[0])?]))
}

/// Captures a model's `forward_t`. With `params`, parameters have the names, kinds and frozen marks that they have
/// there.
///
/// With `train` the graph is that of a training step: batch normalisation from batch statistics, and dropout with its
/// draws counted from 0.
///
/// # Errors
/// As [`capture`].
pub fn capture_model<M: ModuleT>(
    model: &M,
    example: &Tensor,
    train: bool,
    params: Option<&Params>,
) -> Result<Graph> {
    let mut capture = Capture::new().input("x", example);
    if let Some(params) = params {
        capture = capture.params(params);
    }
    capture.run(|inputs| Ok(vec![model.forward_t(&inputs[0], train)?]))
}

/// A graph, and the variables behind its parameters.
#[derive(Debug)]
pub struct Captured {
    /// The graph.
    pub graph: Graph,
    /// Name and variable of each parameter and buffer, in the order of the graph's nodes. They share the model's memory.
    pub params: Vec<(String, Tensor)>,
    /// The modules behind the graph's opaque nodes, by their number; empty unless the capture
    /// [allows](Capture::allow_opaque) them.
    pub opaque: Vec<OpaqueModule>,
}

/// A capture with any number of inputs and outputs, such as a model with its loss.
///
/// Example inputs give shapes and types; the graph is valid for exactly those. For the confirming run the elements are
/// changed: floats by noise of their own spread, integers by mirroring them between their least and their greatest,
/// so that indices stay in range. Give integer examples at least two different elements, or what depends on them can't
/// be told from a constant.
#[derive(Debug, Default)]
pub struct Capture<'a> {
    params: Option<&'a Params>,
    inputs: Vec<(String, &'a Tensor)>,
    opaque: bool,
}

impl<'a> Capture<'a> {
    /// A capture without inputs yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes names, kinds and frozen marks of parameters from here.
    pub fn params(mut self, params: &'a Params) -> Self {
        self.params = Some(params);
        self
    }

    /// Adds an input; its name is unique.
    pub fn input(mut self, name: impl Into<String>, example: &'a Tensor) -> Self {
        self.inputs.push((name.into(), example));
        self
    }

    /// Makes a module that can't be recorded one opaque node, if its container calls it through
    /// [`opaque::call`](crate::opaque::call). Breaks outside such modules are still errors.
    pub fn allow_opaque(mut self, allow: bool) -> Self {
        self.opaque = allow;
        self
    }

    /// Runs the function on the inputs and gives what it did as a graph. It is run two or three times; see the
    /// [module](self) documentation.
    ///
    /// # Errors
    /// [`Error::GraphBreaks`] with all breaks; [`Error::NestedCapture`]; what the function itself fails with.
    pub fn run(
        self,
        run: impl FnMut(&[Tensor]) -> candle_core::Result<Vec<Tensor>>,
    ) -> Result<Graph> {
        Ok(self.run_with_params(run)?.graph)
    }

    /// As [`Capture::run`], and gives the variables behind the graph's parameters too.
    ///
    /// # Errors
    /// As [`Capture::run`].
    pub fn run_with_params(
        self,
        mut run: impl FnMut(&[Tensor]) -> candle_core::Result<Vec<Tensor>>,
    ) -> Result<Captured> {
        if record::is_active() {
            return Err(Error::NestedCapture);
        }
        let _restore = restore::Guard::new(self.params)?;
        let examples = self.examples()?;
        let mut forced = BTreeMap::new();
        loop {
            let (first, breaks) = self.confirmed(&examples, &forced, &mut run)?;
            if breaks.is_empty() {
                return captured(first);
            }
            let around = |(node, found): &Found| Some((first.calls.around(*node)?, found.clone()));
            let more: Option<Vec<_>> = breaks.iter().map(around).collect();
            let is_new = |(number, _): &(usize, Break)| !forced.contains_key(number);
            let Some(more) = more.filter(|more| self.opaque && more.iter().any(is_new)) else {
                let breaks = breaks.into_iter().map(|(_, found)| found);
                return Err(Error::GraphBreaks(breaks.collect()));
            };
            forced.extend(more);
        }
    }

    /// A recorded run, and the breaks that it and further runs show.
    fn confirmed(
        &self,
        examples: &[Var],
        forced: &BTreeMap<usize, Break>,
        run: &mut impl Run,
    ) -> Result<(Recorder, Vec<Found>)> {
        let first = self.record(examples, forced, run)?;
        let mut breaks = identify::raw_operations(&first, self.params);
        breaks.extend(confirm::other_inputs(self, &first, examples, forced, run)?);
        breaks.extend(confirm::other_parameters(
            self, &first, examples, forced, run,
        )?);
        Ok((first, breaks))
    }

    fn examples(&self) -> Result<Vec<Var>> {
        self.inputs
            .iter()
            .map(|(_, example)| Ok(Var::from_tensor(&example.detach())?))
            .collect()
    }

    /// One recorded run, with dropout draws counted from 0.
    fn record(
        &self,
        inputs: &[Var],
        forced: &BTreeMap<usize, Break>,
        run: &mut impl Run,
    ) -> Result<Recorder> {
        let calls = match self.opaque {
            true => Calls::allowed(forced.clone()),
            false => Calls::default(),
        };
        let mut recorder = Recorder::new(self.known_params(), calls);
        for ((name, _), var) in self.inputs.iter().zip(inputs) {
            recorder.input(name, var.as_tensor())?;
        }
        restore::restart_draws();
        let tensors: Vec<Tensor> = inputs.iter().map(|v| v.as_tensor().clone()).collect();
        let (outputs, recorder) = record::with_recorder(recorder, || run(&tensors));
        recorder.finish(&outputs?)
    }

    fn known_params(&self) -> HashMap<candle_core::TensorId, (String, ParamKind)> {
        let entries = self.params.into_iter().flatten();
        entries
            .map(|entry| {
                let kind = match (entry.kind, entry.frozen) {
                    (Kind::Buffer, _) => ParamKind::Buffer,
                    (Kind::Trainable, true) => ParamKind::Frozen,
                    (Kind::Trainable, false) => ParamKind::Trainable,
                };
                (entry.var.id(), (entry.name, kind))
            })
            .collect()
    }
}

/// What a run without breaks comes to.
fn captured(run: Recorder) -> Result<Captured> {
    run.graph.verify()?;
    let params = run.graph.params();
    let params = params.map(|(node, param)| {
        let value = run.values[node.id.0].clone();
        (param.name.clone(), value)
    });
    Ok(Captured {
        params: params.collect(),
        graph: run.graph,
        opaque: run.calls.opaque,
    })
}

/// What is captured.
trait Run: FnMut(&[Tensor]) -> candle_core::Result<Vec<Tensor>> {}
impl<F: FnMut(&[Tensor]) -> candle_core::Result<Vec<Tensor>>> Run for F {}
