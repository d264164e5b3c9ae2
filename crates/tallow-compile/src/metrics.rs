//! [`Metrics`]: what compilation did and cost.

use std::time::Duration;

use serde::Serialize;

/// Counters of a compiled model or step, from its first plan on.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Metrics {
    /// Kernels in all plans.
    pub kernels: usize,
    /// Modules that ran as they are because they couldn't be captured, each run of each; a whole model counts as one.
    pub fallbacks: u64,
    /// Plans that were compiled after the first one.
    pub recompiles: u64,
    /// Runs for which a plan was there.
    pub cache_hits: u64,
    /// Time spent on compiling.
    pub compile_time: Duration,
    /// Bytes of the values in all plans, with memory reused.
    pub planned_memory: u64,
}

/// The time that one kernel of a plan took.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KernelTime {
    /// The operation, such as `conv2d_backward_weight`.
    pub kernel: &'static str,
    /// The path of the module.
    pub module: String,
    /// Floating-point operations of one run, as the definition of the operation has them.
    pub flops: u64,
    /// Timed runs.
    pub runs: u64,
    /// Time of all of them.
    pub time: Duration,
}
