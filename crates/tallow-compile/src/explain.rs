//! [`explain()`]: what compilation makes of a model, as data and as text.
//!
//! Three layers of a diagnosis: what is switched on ([`Options`], passes), what the compiler can't take (an error that names
//! the operation), and what broke the graph ([`Explanation::breaks`]).

use std::collections::BTreeMap;
use std::fmt;

use candle_core::Tensor;
use candle_nn::ModuleT;
use serde::Serialize;
use tallow_graph::op::{Clamp, Grad};
use tallow_graph::{Graph, Node, Op};
use tallow_tensor::{Break, Capture, Captured, OpaqueModule, Params};

use crate::{Memory, Options, Result, compiler, eager};

/// What compilation makes of a model.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// How many graphs there are: one, or none where the graph breaks.
    pub graphs: usize,
    /// Where the graph breaks, and what to write instead.
    pub breaks: Vec<GraphBreak>,
    /// The modules that run as they are, with `Options::fullgraph(false)`.
    pub opaque: Vec<OpaqueNode>,
    /// Operations of the captured graph, by name.
    pub operations: BTreeMap<String, usize>,
    /// Floating-point operations of one run.
    pub flops: u64,
    /// What was joined with what.
    pub fused: Vec<Fusion>,
    /// Kernel calls of one run, by name.
    pub kernels: BTreeMap<String, usize>,
    /// Memory of the values.
    pub memory: Memory,
}

/// A place where the graph breaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GraphBreak {
    /// The path of the module.
    pub module: String,
    /// The operation that reads what wasn't recorded.
    pub operation: String,
    /// Why it is a break, and what to write instead, as the error says it.
    pub reason: String,
}

/// A module that runs as it is, since it can't be captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OpaqueNode {
    /// The path of the module.
    pub module: String,
    /// Why, and what to write instead.
    pub breaks: Vec<GraphBreak>,
}

/// Operations that run as one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fusion {
    /// The path of the module.
    pub module: String,
    /// Their names, in order.
    pub operations: Vec<String>,
}

/// What compiling a model for inference on batches like `example` comes to.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use tallow_compile::{Options, explain};
/// use tallow_nn::SimpleCifar;
/// use tallow_tensor::Params;
///
/// let params = Params::f32_cpu();
/// let model = SimpleCifar::new(3, 10, params.builder())?;
/// let image = Tensor::zeros((1, 3, 32, 32), DType::F32, &Device::Cpu)?;
/// let explanation = explain(&model, &image, &Options::default())?;
/// assert!(explanation.breaks.is_empty());
/// assert!(explanation.to_string().contains("conv2d"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// What the model fails with, and operations that the compiler can't take. Graph breaks are no error here.
pub fn explain<M: ModuleT>(model: &M, example: &Tensor, options: &Options) -> Result<Explanation> {
    options.check()?;
    let captured = Capture::new()
        .input("x", example)
        .allow_opaque(!options.fullgraph)
        .run_with_params(|inputs| Ok(vec![model.forward_t(&inputs[0], false)?]));
    let captured = match captured {
        Err(tallow_tensor::Error::GraphBreaks(breaks)) => return Ok(broken(&breaks)),
        captured => captured?,
    };
    let passed = compiler::inference_graph(captured.graph.clone(), options)?;
    of(&captured, &passed, options, true, &[])
}

/// What compiling a whole training step comes to; `forward` gives the loss and the outputs.
///
/// # Errors
/// As [`explain()`], and for a loss that can't be trained on.
pub fn explain_step(
    params: &Params,
    images: &Tensor,
    targets: &Tensor,
    mut forward: impl FnMut(&Tensor, &Tensor) -> candle_core::Result<(Tensor, Tensor)>,
    options: &Options,
) -> Result<Explanation> {
    options.check()?;
    let capture = Capture::new()
        .params(params)
        .input("x", images)
        .input("targets", targets)
        .allow_opaque(!options.fullgraph);
    let captured = capture.run_with_params(|inputs| {
        let (loss, outputs) = forward(&inputs[0], &inputs[1])?;
        Ok(vec![loss, outputs])
    });
    let captured = match captured {
        Err(tallow_tensor::Error::GraphBreaks(breaks)) => return Ok(broken(&breaks)),
        captured => captured?,
    };
    let step = compiler::training_graph(&captured.graph, options)?;
    let external: Vec<usize> = (2..2 + step.gradients.len()).collect();
    of(&captured, &step.graph, options, false, &external)
}

fn broken(breaks: &[Break]) -> Explanation {
    Explanation {
        breaks: breaks.iter().map(graph_break).collect(),
        ..Explanation::default()
    }
}

fn graph_break(found: &Break) -> GraphBreak {
    GraphBreak {
        module: found.module.clone(),
        operation: found.operation.to_string(),
        reason: found.to_string(),
    }
}

fn of(
    captured: &Captured,
    passed: &Graph,
    options: &Options,
    keep: bool,
    external: &[usize],
) -> Result<Explanation> {
    let modules = eager::modules(captured.opaque.clone(), !keep);
    let plan = compiler::plan(passed, options, keep, external, &modules)?;
    let operations = captured
        .graph
        .nodes
        .iter()
        .filter(|node| !is_source(node))
        .map(|node| node.op.name());
    Ok(Explanation {
        graphs: 1,
        breaks: Vec::new(),
        opaque: captured.opaque.iter().map(opaque_module).collect(),
        operations: count(operations),
        flops: plan.steps.iter().map(|step| step.flops).sum(),
        fused: passed.nodes.iter().filter_map(fusion).collect(),
        kernels: count(plan.steps.iter().map(|step| step.name)),
        memory: plan.memory,
    })
}

fn opaque_module(module: &OpaqueModule) -> OpaqueNode {
    OpaqueNode {
        module: module.path.clone(),
        breaks: module.breaks.iter().map(graph_break).collect(),
    }
}

fn is_source(node: &Node) -> bool {
    matches!(node.op, Op::Input(_) | Op::Param(_) | Op::Constant(_))
}

fn count<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name.to_string()).or_default() += 1;
    }
    counts
}

/// What a node joins, if it joins anything.
fn fusion(node: &Node) -> Option<Fusion> {
    let activation = |clamp: Option<Clamp>| match clamp {
        None => None,
        Some(Clamp::Relu) => Some("relu"),
        Some(Clamp::Relu6) => Some("relu6"),
    };
    let mut operations = vec![node.op.name().trim_start_matches("fused_")];
    match &node.op {
        Op::FusedConv2d(op) => {
            operations.extend(op.bias.then_some("bias"));
            operations.extend(op.residual.then_some("add"));
            operations.extend(activation(op.activation));
        }
        Op::Normalize(op) => {
            operations.extend(op.residual.then_some("add"));
            operations.extend(activation(op.activation));
        }
        Op::NormalizeSums(op) => operations.extend(activation(op.activation)),
        Op::NormalizeBackward(op) => operations.extend(activation(op.activation)),
        Op::Grad(Grad { add: true, .. }) => operations.push("add"),
        Op::Pointwise(op) => operations = op.steps.iter().map(|step| step.op.name()).collect(),
        _ => {}
    }
    (operations.len() > 1).then(|| Fusion {
        module: node.scope.clone(),
        operations: operations.into_iter().map(str::to_string).collect(),
    })
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graphs: {}, breaks: {}", self.graphs, self.breaks.len())?;
        for found in &self.breaks {
            writeln!(f, "  {}", found.reason)?;
        }
        if !self.opaque.is_empty() {
            writeln!(f, "modules that run as they are: {}", self.opaque.len())?;
        }
        for found in self.opaque.iter().flat_map(|module| &module.breaks) {
            writeln!(f, "  {}", found.reason)?;
        }
        if self.graphs == 0 {
            return Ok(());
        }
        let mega = |bytes: u64| bytes as f64 / 1e6;
        writeln!(f, "operations: {}", list(&self.operations))?;
        writeln!(f, "kernels: {}", list(&self.kernels))?;
        writeln!(f, "GFLOP a run: {:.3}", self.flops as f64 / 1e9)?;
        writeln!(
            f,
            "memory of values: {:.1} MB planned, {:.1} MB at least, {:.1} MB without reuse",
            mega(self.memory.planned),
            mega(self.memory.live),
            mega(self.memory.naive)
        )?;
        writeln!(f, "joined: {}", self.fused.len())?;
        for fusion in &self.fused {
            let module = if fusion.module.is_empty() {
                "(root)"
            } else {
                &fusion.module
            };
            writeln!(f, "  {module}: {}", fusion.operations.join(" + "))?;
        }
        Ok(())
    }
}

fn list(counts: &BTreeMap<String, usize>) -> String {
    let items = counts.iter().map(|(name, count)| format!("{count} {name}"));
    items.collect::<Vec<_>>().join(", ")
}
