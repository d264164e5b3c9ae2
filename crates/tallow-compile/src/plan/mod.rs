//! [`Plan`]: a graph as a list of kernel calls on memory that is laid out beforehand.
//!
//! Values live in slots (see `memory`), which are allocated once. What depends on parameters alone is computed when
//! the parameters are read in, and kept (inference), or once a step (training).

mod build;
mod memory;
mod run;

use tallow_graph::TensorType;
use tallow_kernels::buffer::Buffer;
use tallow_kernels::workspace::Workspace;

use crate::lower::Run;

pub(crate) use build::{Settings, build};
pub(crate) use run::Frame;

/// Chooses between algorithms for a convolution.
pub(crate) trait Choices {
    /// The algorithm to use.
    fn convolution(
        &mut self,
        site: &ConvolutionSite,
    ) -> tallow_kernels::channels_last::conv::Algorithm;
}

/// A convolution to choose an algorithm for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConvolutionSite {
    pub(crate) geometry: tallow_kernels::conv::Conv2dGeometry,
    pub(crate) phase: Phase,
    /// Whether the weights are packed at every run.
    pub(crate) packs: bool,
}

/// What is computed of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Forward,
    BackwardInput,
    BackwardWeight,
}

/// Where a value lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// In a slot, while it is read.
    Slot(usize),
    /// In memory of its own, computed from the parameters when they are read in.
    Kept(usize),
    /// In the model's parameter.
    Param(usize),
    /// In what the caller feeds.
    Input(usize),
    /// In the plan.
    Constant(usize),
    /// In what the caller gave to be written.
    Output(usize),
}

/// One kernel call.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) scope: String,
    pub(crate) flops: u64,
    /// What it reads and gives, for profilers: types, and bytes once each.
    shape: String,
    bytes: u64,
    run: Run,
    /// Where it reads, and how many floats where that is a slot.
    reads: Vec<(Place, usize)>,
    writes: Place,
    len: usize,
    taken: Option<usize>,
}

/// A graph, ready to run.
pub(crate) struct Plan {
    /// What is computed when the parameters are read in.
    prepare: Vec<Step>,
    pub(crate) steps: Vec<Step>,
    slots: Vec<Buffer>,
    kept: Vec<Buffer>,
    /// Kept values that only `prepare` reads; they hold nothing outside of it.
    passing: Vec<Passing>,
    constants: Vec<Constant>,
    /// The parameters that it reads, in order.
    pub(crate) params: Vec<String>,
    /// Where the outputs lie when it is done, and their types.
    outputs: Vec<(Place, TensorType)>,
    pub(crate) memory: Memory,
    /// The largest values at the moment at which most memory is needed, for profilers: a line each.
    holders: String,
    workspace: Workspace,
    /// Time and number of runs of each step, where runs are timed.
    times: Vec<(std::time::Duration, u64)>,
}

/// A kept value on its way to another one, such as a weight that is packed once batch normalisation is folded into it.
#[derive(Debug, Clone, Copy)]
struct Passing {
    kept: usize,
    len: usize,
    /// The steps of `prepare` that write it and that read it last.
    written: usize,
    last_read: usize,
}

/// A value that is part of the plan.
enum Constant {
    Floats(Vec<f32>),
    Ints(Vec<i64>),
}

/// Memory of a plan's values, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Memory {
    /// With slots shared.
    pub planned: u64,
    /// The most that is needed at a time if each value had memory of its own while it is read: what no plan can
    /// undercut without computing anything twice.
    pub live: u64,
    /// If each value had memory of its own for the whole run.
    pub naive: u64,
}
