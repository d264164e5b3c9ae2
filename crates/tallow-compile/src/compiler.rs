//! From a captured graph to a plan: the passes, watched and written out, then lowering.

use std::path::Path;

use tallow_graph::Graph;
use tallow_kernels::simd::{self, Level};

use crate::choose::{ByShape, Timed};
use crate::eager::Modules;
use crate::gradient;
use crate::passes::{self, RunningStats};
use crate::plan::{self, Plan, Settings};
use crate::{Error, Mode, Options, Precision, Result};

/// The graph of a whole training step. Its outputs are those of the captured graph, the loss first, then the
/// gradients, then the next running statistics, then the gradients of what opaque modules read.
pub(crate) struct StepGraph {
    pub(crate) graph: Graph,
    /// Names of the parameters that have gradients, in the order of the outputs.
    pub(crate) gradients: Vec<String>,
    /// Names of the buffers that the step changes, in the order of the outputs.
    pub(crate) buffers: Vec<String>,
}

/// Runs the passes for inference.
pub(crate) fn inference_graph(graph: Graph, options: &Options) -> Result<Graph> {
    let mut dump = Dump::new(options.dump.as_deref());
    dump.write("captured", &graph)?;
    passes::inference(graph, options, &mut |name, graph| dump.write(name, graph))
}

/// Makes the training step of a captured graph whose first output is the loss, and runs the passes on it.
pub(crate) fn training_graph(graph: &Graph, options: &Options) -> Result<StepGraph> {
    let mut dump = Dump::new(options.dump.as_deref());
    dump.write("captured", graph)?;
    let fault = |source| Error::Pass {
        pass: "split",
        when: "made",
        source: Box::new(source),
    };
    let (mut split, buffers) = passes::split(graph).map_err(fault)?;
    split.verify().map_err(fault)?;
    dump.write("split", &split)?;
    let loss = split
        .outputs
        .first()
        .copied()
        .ok_or(tallow_graph::GraphError::NoOutputs)?;
    let gradient::Backward { gradients, opaque } = gradient::differentiate(&mut split, loss)?;
    split.outputs.extend(gradients.iter().map(|(_, id)| *id));
    split.outputs.extend(buffers.iter().map(|(_, id)| *id));
    // Nobody reads them where the module's input needs no gradient, and its parameters do.
    split.outputs.extend(opaque);
    dump.write("gradient", &split)?;
    let graph = passes::training(split, options, &mut |name, graph| dump.write(name, graph))?;
    let names = |list: RunningStats| list.into_iter().map(|(name, _)| name).collect();
    Ok(StepGraph {
        graph,
        gradients: names(gradients),
        buffers: names(buffers),
    })
}

/// Whether kernels have instructions for bfloat16 here.
pub(crate) fn multiplies_bf16() -> bool {
    simd::level() == Level::Avx512Bf16
}

/// Makes a plan with the algorithms that the mode asks for.
pub(crate) fn plan(
    graph: &Graph,
    options: &Options,
    keep: bool,
    external: &[usize],
    modules: &Modules,
) -> Result<Plan> {
    let bf16 = options.precision == Precision::Bf16 && multiplies_bf16();
    let by_shape = ByShape {
        winograd: options.winograd,
        bf16,
    };
    let settings = |choices| Settings {
        choices,
        keep,
        external,
        modules,
        bf16,
    };
    if options.mode == Mode::MaxAutotune {
        let mut timed = Timed::new(by_shape, options.autotune_file.as_deref());
        let plan = plan::build(graph, settings(&mut timed))?;
        timed.save()?;
        return Ok(plan);
    }
    plan::build(graph, settings(&mut { by_shape }))
}

/// Writes graphs into a folder, numbered in the order of the passes.
struct Dump<'a> {
    folder: Option<&'a Path>,
    number: usize,
}

impl<'a> Dump<'a> {
    fn new(folder: Option<&'a Path>) -> Self {
        Self { folder, number: 0 }
    }

    fn write(&mut self, name: &str, graph: &Graph) -> Result<()> {
        let Some(folder) = self.folder else {
            return Ok(());
        };
        let path = folder.join(format!("{:02}_{name}.txt", self.number));
        self.number += 1;
        let written =
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, graph.to_string()));
        written.map_err(|source| Error::Write { path, source })
    }
}
