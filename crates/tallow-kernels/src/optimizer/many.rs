//! Many parameters in one parallel section: a network has a hundred small ones, and a section each would cost more than
//! their updates.
//!
//! Parameters are cut into chunks by their lengths alone, so that no result depends on the number of threads.

use crate::error::{Result, check_len};
use crate::parallel::{LEAF, for_each};

/// A parameter that is updated together with others.
#[derive(Debug)]
pub struct Job<'a, C> {
    /// The settings of its update.
    pub config: C,
    /// The parameter.
    pub param: &'a mut [f32],
    /// Its gradient, as long.
    pub grad: &'a [f32],
    /// What the update remembers of it, each as long; empty where the update keeps less.
    pub state: [&'a mut [f32]; 2],
}

impl<C> Job<'_, C> {
    /// Fails unless gradient and the first `states` states are as long as the parameter.
    pub(super) fn check(&self, kernel: &'static str, states: &[&'static str]) -> Result<()> {
        check_len(kernel, "grad", self.grad, self.param.len())?;
        for (name, state) in states.iter().zip(&self.state) {
            check_len(kernel, name, state, self.param.len())?;
        }
        Ok(())
    }
}

/// A part of a parameter.
pub(super) struct Chunk<'a> {
    /// The job it belongs to.
    pub(super) job: usize,
    pub(super) param: &'a mut [f32],
    pub(super) grad: &'a [f32],
    pub(super) state: [&'a mut [f32]; 2],
    /// What a pass over the chunk sums up.
    pub(super) sums: [f64; 2],
}

/// Chunks that a task takes at least.
const CHUNKS_A_TASK: usize = 4;

/// All chunks of all jobs, in order.
pub(super) fn chunks<'a, C>(jobs: &'a mut [Job<'_, C>]) -> Vec<Chunk<'a>> {
    let mut chunks = Vec::new();
    for (index, job) in jobs.iter_mut().enumerate() {
        let [first, second] = &mut job.state;
        let mut states = [first.chunks_mut(LEAF), second.chunks_mut(LEAF)];
        for (param, grad) in job.param.chunks_mut(LEAF).zip(job.grad.chunks(LEAF)) {
            chunks.push(Chunk {
                job: index,
                param,
                grad,
                state: states
                    .each_mut()
                    .map(|state| state.next().unwrap_or_default()),
                sums: [0.0; 2],
            });
        }
    }
    chunks
}

/// Calls `f` for every chunk.
pub(super) fn each(chunks: &mut [Chunk<'_>], f: impl Fn(&mut Chunk<'_>) + Sync) {
    for_each(
        chunks.len(),
        CHUNKS_A_TASK,
        chunks,
        |_, chunks: &mut [Chunk<'_>]| {
            chunks.iter_mut().for_each(&f);
        },
    );
}
