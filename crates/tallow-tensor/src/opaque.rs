//! Modules that may stand in a captured graph as they are, where they can't be written in the vocabulary.
//!
//! A container calls its parts through [`call`]. As long as nobody records, that is `forward_t`. A capture that
//! [allows it](crate::Capture::allow_opaque) records what the module does if it can, and otherwise one
//! [`Op::Opaque`](tallow_graph::Op::Opaque) for the whole module: whoever runs the graph runs the module there.

use std::fmt;
use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::ModuleT;

use crate::capture::Break;
use crate::{no_grad, record, rng, scope};

/// A module that a container and a graph share.
pub type SharedModule = Arc<dyn ModuleT + Send + Sync>;

/// Runs a module that may become opaque: one tensor in, one tensor out, and nothing else that recorded operations
/// made.
///
/// # Errors
/// What the module fails with.
pub fn call(module: &SharedModule, xs: &Tensor, train: bool) -> Result<Tensor> {
    let entry = record::with_active(|recorder| {
        let number = recorder.count_call();
        let is_open = !record::is_paused();
        is_open.then(|| recorder.enter_call(number, xs)).flatten()
    });
    let Some(entry) = entry.flatten() else {
        return module.forward_t(xs, train);
    };
    let draws = rng::state().draws;
    let ys = if entry.is_forced() {
        let _pause = record::pause();
        module.forward_t(xs, train)?
    } else {
        module.forward_t(xs, train)?
    };
    record::with_active(|recorder| {
        let opaque = OpaqueModule {
            path: scope::path(),
            module: module.clone(),
            train,
            draws,
            breaks: Vec::new(),
        };
        recorder.leave_call(entry, opaque, xs, &ys);
    });
    Ok(ys)
}

/// A module that a graph has as one node.
#[derive(Clone)]
pub struct OpaqueModule {
    /// Its path.
    pub path: String,
    module: SharedModule,
    train: bool,
    /// The step's draws before it.
    draws: u64,
    /// Why it couldn't be recorded.
    pub breaks: Vec<Break>,
}

impl OpaqueModule {
    /// Runs the module as it ran in the capture, on candle's tape unless [`no_grad`] is in force.
    /// Random draws are those that an eager run makes at this place.
    ///
    /// # Errors
    /// What the module fails with.
    pub fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let before = rng::state();
        rng::restore(rng::State {
            draws: self.draws,
            ..before
        });
        let ys = self.module.forward_t(xs, self.train);
        rng::restore(before);
        let ys = ys?;
        Ok(if no_grad::is_active() {
            ys.detach()
        } else {
            ys
        })
    }
}

impl fmt::Debug for OpaqueModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpaqueModule")
            .field("path", &self.path)
            .field("train", &self.train)
            .field("draws", &self.draws)
            .field("breaks", &self.breaks)
            .finish_non_exhaustive()
    }
}
