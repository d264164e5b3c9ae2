//! The passes, in the order in which they run, each a function from graph to graph in a file of its own.
//!
//! The graph is checked before the first pass and after each; what breaks a rule is reported with the pass's name.
//! A pass keeps what the graph computes, its inputs and the order of its outputs.

mod autocast;
mod chain;
mod channels_last;
mod common_subexpressions;
mod dead_code;
mod fold_batch_norm;
mod fold_constants;
mod fuse_addition;
mod fuse_backward;
mod fuse_convolution;
mod fuse_int8;
mod fuse_normalize;
mod fuse_pointwise;
mod split;

use tallow_graph::{Graph, GraphError};

use crate::{Error, Options, Precision, Result};

pub(crate) use split::{RunningStats, split};

/// What a pass does.
type Rewriting = fn(&Graph) -> std::result::Result<Graph, GraphError>;

/// A rewriting of a graph that keeps what it computes.
pub(crate) struct Pass {
    pub(crate) name: &'static str,
    run: Rewriting,
    need: Need,
}

/// Who decides whether a pass runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// The caller, who may switch it off.
    Optional,
    /// Nobody: plans can't be made without it.
    Required,
    /// The precision that is asked for.
    Precision(Precision),
}

const fn optional(name: &'static str, run: Rewriting) -> Pass {
    Pass {
        name,
        run,
        need: Need::Optional,
    }
}

/// For inference.
const INFERENCE: &[Pass] = &[
    optional("fold_constants", fold_constants::run),
    optional("fold_batch_norm", fold_batch_norm::run),
    AUTOCAST,
    optional("fuse_convolution", fuse_convolution::run),
    optional("fuse_int8", fuse_int8::run),
    optional("common_subexpressions", common_subexpressions::run),
    optional("dead_code", dead_code::run),
    optional("fuse_pointwise", fuse_pointwise::run),
    CHANNELS_LAST,
];

/// For a training step, after `split` and `gradient` have made it out of the model's graph.
const TRAINING: &[Pass] = &[
    optional("fold_constants", fold_constants::run),
    optional("common_subexpressions", common_subexpressions::run),
    optional("dead_code", dead_code::run),
    optional("fuse_normalize", fuse_normalize::run),
    optional("fuse_backward", fuse_backward::run),
    optional("fuse_addition", fuse_addition::run),
    AUTOCAST,
    optional("fuse_pointwise", fuse_pointwise::run),
    CHANNELS_LAST,
];

/// Kernels of images work channels last: the one pass that isn't a choice.
const CHANNELS_LAST: Pass = Pass {
    name: "channels_last",
    run: channels_last::run,
    need: Need::Required,
};

/// Part of what `Precision::Bf16` means.
const AUTOCAST: Pass = Pass {
    name: "autocast",
    run: autocast::run,
    need: Need::Precision(Precision::Bf16),
};

/// The names of the passes that can be switched off.
pub fn names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for pass in INFERENCE.iter().chain(TRAINING) {
        if pass.need == Need::Optional && !names.contains(&pass.name) {
            names.push(pass.name);
        }
    }
    names
}

/// Runs the passes for inference; `watch` sees the graph after each.
pub(crate) fn inference(graph: Graph, options: &Options, watch: Watch<'_>) -> Result<Graph> {
    run(graph, INFERENCE, options, watch)
}

/// Runs the passes for a training step; `watch` sees the graph after each.
pub(crate) fn training(graph: Graph, options: &Options, watch: Watch<'_>) -> Result<Graph> {
    run(graph, TRAINING, options, watch)
}

/// Sees a graph and the name of the pass that made it.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&'static str, &Graph) -> Result<()>;

fn run(mut graph: Graph, passes: &[Pass], options: &Options, watch: Watch<'_>) -> Result<Graph> {
    for pass in passes {
        let runs = match pass.need {
            Need::Optional => !options.is_off(pass.name),
            Need::Required => true,
            Need::Precision(precision) => options.precision == precision,
        };
        if !runs {
            continue;
        }
        let fault = |when| {
            move |source| Error::Pass {
                pass: pass.name,
                when,
                source: Box::new(source),
            }
        };
        graph.verify().map_err(fault("was given"))?;
        graph = (pass.run)(&graph).map_err(fault("made"))?;
        graph.verify().map_err(fault("made"))?;
        watch(pass.name, &graph)?;
    }
    Ok(graph)
}
