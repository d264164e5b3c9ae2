//! [`Compiled`]: a model whose inference runs as plans; [`InferenceCompiler`]: the plans without the model.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use candle_core::{Device, Tensor};
use candle_nn::ModuleT;
use tallow_tensor::{Capture, inplace, memory};

use crate::bind::{self, Fed};
use crate::cache::{Cache, Signature};
use crate::plan::{Frame, Plan};
use crate::{Error, KernelTime, Metrics, Options, Result, compiler, eager};

/// Compiles a model for inference on batches like `example` (`torch.compile` on a model in evaluation mode).
///
/// # Errors
/// A graph break with `fullgraph`, naming each; operations, types or devices that plans can't take.
pub fn compile<'m, M: ModuleT>(
    model: &'m M,
    example: &Tensor,
    options: Options,
) -> Result<Compiled<'m, M>> {
    let compiled = Compiled {
        model,
        compiler: Mutex::new(InferenceCompiler::new(options)?),
    };
    compiled.forward(example)?;
    Ok(compiled)
}

/// A model that runs its inference as compiled plans, one a signature of shapes.
///
/// A [`ModuleT`]: `forward_t(&x, false)` runs a plan, and `forward_t(&x, true)` the model itself, tape and all; whole
/// training steps are compiled by [`StepCompiler`](crate::StepCompiler). What a plan gives is not on the tape.
///
/// Plans keep forms of the parameters that are made for running. Changes that Tallow makes to parameters (optimizers,
/// [`Params::load`](tallow_tensor::Params::load), running statistics) are noticed; after changing one with candle's own
/// `Var::set`, call [`Compiled::refresh`].
pub struct Compiled<'m, M> {
    model: &'m M,
    compiler: Mutex<InferenceCompiler>,
}

impl<M: ModuleT> Compiled<'_, M> {
    /// The model on a batch, in inference.
    ///
    /// # Errors
    /// [`Error::CacheLimit`] for one signature too many, and what compiling and kernels fail with.
    pub fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let mut compiler = self.lock();
        compiler.run(xs, |xs| self.model.forward_t(xs, false))
    }

    /// Reads the parameters in again at the next run. Only needed after changing one with candle's own `Var::set`.
    pub fn refresh(&self) {
        inplace::touch();
    }

    /// What compilation did and cost so far.
    pub fn metrics(&self) -> Metrics {
        self.lock().metrics().clone()
    }

    /// The model.
    pub fn model(&self) -> &M {
        self.model
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, InferenceCompiler> {
        self.compiler.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: ModuleT> ModuleT for Compiled<'_, M> {
    fn forward_t(&self, xs: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        match train {
            true => self.model.forward_t(xs, true),
            false => Ok(self.forward(xs)?),
        }
    }
}

/// Runs inference as compiled plans, one a signature of shapes, for callers who hold the model themselves.
pub struct InferenceCompiler {
    options: Options,
    cache: Cache<Entry>,
    metrics: Metrics,
    measures: bool,
}

/// What runs for one signature.
enum Entry {
    Plan(Box<Bound>),
    /// The model itself, since it can't be captured, and why.
    Eager(String),
}

/// A plan with the parameters that it reads.
struct Bound {
    plan: Plan,
    params: Vec<Tensor>,
    /// When the parameters were read in; `None` before the first time.
    prepared: Option<u64>,
    /// How many modules run as they are.
    eager: u64,
}

impl InferenceCompiler {
    /// A compiler that has no plan yet.
    ///
    /// # Errors
    /// Options that can't be met, such as a precision that this CPU hasn't.
    pub fn new(options: Options) -> Result<Self> {
        options.check()?;
        Ok(Self {
            cache: Cache::new(options.cache_limit),
            metrics: Metrics::default(),
            measures: false,
            options,
        })
    }

    /// What `forward`, a model in inference, gives for a batch. It is run when a new signature is met, and never again
    /// for that signature.
    ///
    /// # Errors
    /// A graph break with `fullgraph`, naming each; [`Error::CacheLimit`] for one signature too many; operations, types or
    /// devices that plans can't take.
    pub fn run(
        &mut self,
        xs: &Tensor,
        mut forward: impl FnMut(&Tensor) -> candle_core::Result<Tensor>,
    ) -> Result<Tensor> {
        let Self {
            options,
            cache,
            metrics,
            measures,
        } = self;
        let signature = Signature {
            inputs: bind::signature(&[xs])?,
            frozen: Vec::new(),
        };
        match cache.get(&signature, metrics, |metrics| {
            entry(options, xs, &mut forward, metrics)
        })? {
            Entry::Plan(bound) => {
                metrics.fallbacks += bound.eager;
                bound.plan.measure(*measures);
                bound.run(xs)
            }
            Entry::Eager(reasons) => {
                metrics.fallbacks += 1;
                let _span = eager::span("", reasons);
                let _guard = tallow_tensor::no_grad::enter();
                Ok(forward(xs)?.detach())
            }
        }
    }

    /// What compilation did and cost so far.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether the next runs are timed kernel by kernel; see [`InferenceCompiler::kernel_times`].
    pub fn measure(&mut self, on: bool) {
        self.measures = on;
    }

    /// The time that each kernel took, over all timed runs.
    pub fn kernel_times(&self) -> Vec<KernelTime> {
        let plans = self.cache.plans().filter_map(|entry| match entry {
            Entry::Plan(bound) => Some(&bound.plan),
            Entry::Eager(_) => None,
        });
        plans.flat_map(Plan::kernel_times).collect()
    }
}

fn entry(
    options: &Options,
    xs: &Tensor,
    forward: &mut impl FnMut(&Tensor) -> candle_core::Result<Tensor>,
    metrics: &mut Metrics,
) -> Result<Entry> {
    let capture = Capture::new()
        .input("x", xs)
        .allow_opaque(!options.fullgraph);
    let captured = match capture.run_with_params(|inputs| Ok(vec![forward(&inputs[0])?])) {
        Err(tallow_tensor::Error::GraphBreaks(breaks)) if !options.fullgraph => {
            return Ok(Entry::Eager(eager::reasons(&breaks)));
        }
        captured => captured?,
    };
    memory::give_back();
    let graph = compiler::inference_graph(captured.graph, options)?;
    let modules = eager::modules(captured.opaque, false);
    let plan = compiler::plan(&graph, options, true, &[], &modules)?;
    metrics.kernels += plan.steps.len();
    metrics.planned_memory += plan.memory.planned;
    let tensors: HashMap<String, Tensor> = captured.params.into_iter().collect();
    let params = bind::parameters(&plan.params, &tensors)?;
    Ok(Entry::Plan(Box::new(Bound {
        plan,
        params,
        prepared: None,
        eager: modules.len() as u64,
    })))
}

impl Bound {
    fn run(&mut self, xs: &Tensor) -> Result<Tensor> {
        let Self {
            plan,
            params,
            prepared,
            ..
        } = self;
        let fed: [Fed; 1] = [bind::feed("x", xs)?];
        let now = inplace::generation();
        let run = |params: &[&[f32]]| -> Result<Tensor> {
            if *prepared != Some(now) {
                plan.prepare(params)?;
                *prepared = Some(now);
            }
            bind::with_inputs(&fed, |inputs| {
                plan.run(&mut Frame {
                    params,
                    inputs,
                    outputs: &mut [],
                })
            })??;
            output(plan, 0)
        };
        inplace::read_all(params, run)?
    }
}

/// Output number `index` as a tensor of its own.
pub(crate) fn output(plan: &Plan, index: usize) -> Result<Tensor> {
    let (values, ty) = plan.output(index).ok_or_else(|| Error::Unsupported {
        operation: "the model".into(),
        module: String::new(),
        problem: format!("gives integers as output {index}"),
        remedy: "return floats",
    })?;
    Ok(Tensor::from_slice(
        values,
        ty.shape.as_slice(),
        &Device::Cpu,
    )?)
}
