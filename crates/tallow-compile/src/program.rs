//! [`CompiledGraph`]: a graph with its weights as a plan, for who has no model, such as the reader of an exported program.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use candle_core::Tensor;
use tallow_graph::{Graph, Op, TensorType};
use tallow_tensor::convert;

use crate::bind::{self, Fed};
use crate::inference::output;
use crate::plan::{Frame, Memory, Plan};
use crate::{Error, KernelTime, Metrics, Options, Result, compiler, eager};

/// The elements of a parameter, row-major; perhaps a part of a mapped file.
pub type Weight = Arc<dyn AsRef<[f32]> + Send + Sync>;

/// Compiles an inference graph whose parameters have these values, by name.
///
/// Weights that run in another form (packed for convolutions, with batch normalisation folded in) are brought into it at
/// the first run, not here; the others are read where they lie, at every run. Nothing notices a change of a weight.
///
/// ```
/// use std::{collections::HashMap, sync::Arc};
/// use candle_core::{Device, Tensor};
/// use tallow_compile::{Options, Weight, compile_graph};
/// use tallow_graph::op::{Input, Param, ParamKind};
/// use tallow_graph::{Graph, Op, TensorType};
///
/// let mut graph = Graph::default();
/// let x = graph.push(Op::Input(Input { name: "x".into(), ty: TensorType::f32([1, 2]) }), &[], "")?;
/// let weight = Param { name: "fc.weight".into(), ty: TensorType::f32([1, 2]), kind: ParamKind::Frozen };
/// let weight = graph.push(Op::Param(weight), &[], "fc")?;
/// let y = graph.push(Op::Linear, &[x, weight], "fc")?;
/// graph.outputs.push(y);
///
/// let weights = HashMap::from([("fc.weight".to_string(), Arc::new([10f32, 1.]) as Weight)]);
/// let compiled = compile_graph(graph, &weights, &Options::default())?;
/// let outputs = compiled.run(&[Tensor::new(&[[1f32, 2.]], &Device::Cpu)?])?;
/// assert_eq!(outputs[0].to_vec2::<f32>()?, [[12.]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A weight that is missing or of another length, a graph that breaks its rules, and what plans can't run.
pub fn compile_graph(
    graph: Graph,
    weights: &HashMap<String, Weight>,
    options: &Options,
) -> Result<CompiledGraph> {
    options.check()?;
    graph.verify()?;
    check_weights(&graph, weights)?;
    let start = Instant::now();
    let inputs = inputs(&graph);
    let graph = compiler::inference_graph(graph, options)?;
    let plan = compiler::plan(
        &graph,
        options,
        true,
        &[],
        &eager::modules(Vec::new(), false),
    )?;
    let params = plan.params.iter().map(|name| weights[name].clone());
    let metrics = Metrics {
        kernels: plan.steps.len(),
        planned_memory: plan.memory.planned,
        compile_time: start.elapsed(),
        ..Metrics::default()
    };
    Ok(CompiledGraph {
        inputs,
        metrics,
        outputs: graph.outputs.len(),
        bound: Mutex::new(Bound {
            params: params.collect(),
            plan,
            prepared: false,
        }),
    })
}

/// A graph with its weights, ready to run. Calls from several threads run one after the other.
pub struct CompiledGraph {
    inputs: Vec<(String, TensorType)>,
    outputs: usize,
    metrics: Metrics,
    bound: Mutex<Bound>,
}

struct Bound {
    plan: Plan,
    params: Vec<Weight>,
    /// Whether what is kept of the weights has been computed.
    prepared: bool,
}

impl CompiledGraph {
    /// The outputs for these inputs, each in the order of the graph.
    ///
    /// # Errors
    /// [`Error::Arguments`] for inputs of another number or type, and what kernels fail with.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.check(inputs)?;
        let named = self.inputs.iter().zip(inputs);
        let fed = named.map(|((name, _), tensor)| bind::feed(name, tensor));
        let fed: Vec<Fed> = fed.collect::<Result<_>>()?;
        let mut bound = self.lock();
        let Bound {
            plan,
            params,
            prepared,
        } = &mut *bound;
        let params: Vec<&[f32]> = params.iter().map(|weight| (**weight).as_ref()).collect();
        if !*prepared {
            plan.prepare(&params)?;
            *prepared = true;
        }
        bind::with_inputs(&fed, |inputs| {
            plan.run(&mut Frame {
                params: &params,
                inputs,
                outputs: &mut [],
            })
        })??;
        (0..self.outputs).map(|index| output(plan, index)).collect()
    }

    /// Name and type of each input.
    pub fn inputs(&self) -> &[(String, TensorType)] {
        &self.inputs
    }

    /// What compilation did and cost.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The memory of its values.
    pub fn memory(&self) -> Memory {
        self.lock().plan.memory
    }

    /// Whether the next runs are timed kernel by kernel; see [`CompiledGraph::kernel_times`].
    pub fn measure(&self, on: bool) {
        self.lock().plan.measure(on);
    }

    /// The time that each kernel took, over all timed runs.
    pub fn kernel_times(&self) -> Vec<KernelTime> {
        self.lock().plan.kernel_times().collect()
    }

    fn check(&self, inputs: &[Tensor]) -> Result<()> {
        let found = inputs.iter().map(convert::tensor_type);
        let found: Vec<TensorType> = found.collect::<tallow_tensor::Result<_>>()?;
        let expected = self.inputs.iter().map(|(_, ty)| ty);
        if found.iter().eq(expected) {
            return Ok(());
        }
        let named = |(name, ty): &(String, TensorType)| format!("{name}: {ty}");
        let list = |list: Vec<String>| format!("({})", list.join(", "));
        Err(Error::Arguments {
            found: list(found.iter().map(ToString::to_string).collect()),
            expected: list(self.inputs.iter().map(named).collect()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn inputs(graph: &Graph) -> Vec<(String, TensorType)> {
    let nodes = graph.inputs.iter().filter_map(|id| graph.node(*id));
    let named = nodes.filter_map(|node| match &node.op {
        Op::Input(input) => Some((input.name.clone(), input.ty.clone())),
        _ => None,
    });
    named.collect()
}

fn check_weights(graph: &Graph, weights: &HashMap<String, Weight>) -> Result<()> {
    for (node, param) in graph.params() {
        let len = weights
            .get(&param.name)
            .map(|weight| (**weight).as_ref().len());
        if len.map(|len| len as u64) == Some(param.ty.elements()) {
            continue;
        }
        let found = len.map_or("was not given".into(), |len| format!("has {len} elements"));
        return Err(Error::Unsupported {
            operation: format!("weight `{}`", param.name),
            module: node.scope.clone(),
            problem: format!("{found}, the graph asks for {}", param.ty),
            remedy: "give every weight of the graph in its shape",
        });
    }
    Ok(())
}
