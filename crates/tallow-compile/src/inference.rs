//! [`Compiled`]: a model whose inference runs as plans.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use candle_core::{Device, Tensor};
use candle_nn::ModuleT;
use tallow_tensor::{Capture, Params, inplace};

use crate::bind::{self, Fed};
use crate::cache::{Cache, Signature};
use crate::plan::{Frame, Plan};
use crate::{Error, Metrics, Options, Result, compiler};

/// Compiles a model for inference on batches like `example` (`torch.compile` on a model in evaluation mode).
///
/// # Errors
/// A graph break with `fullgraph`, naming each; operations, types or devices that plans can't take.
pub fn compile<'m, M: ModuleT>(
    model: &'m M,
    example: &Tensor,
    options: Options,
) -> Result<Compiled<'m, M>> {
    compile_with(model, None, example, options)
}

/// As [`compile`], with the names that parameters have in `params`.
///
/// # Errors
/// As [`compile`].
pub fn compile_with<'m, M: ModuleT>(
    model: &'m M,
    params: Option<&Params>,
    example: &Tensor,
    options: Options,
) -> Result<Compiled<'m, M>> {
    options.check()?;
    let compiled = Compiled {
        model,
        params: params.cloned(),
        state: Mutex::new(State {
            cache: Cache::new(options.cache_limit),
            metrics: Metrics::default(),
        }),
        options,
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
/// [`Params::load`], running statistics) are noticed; after changing one with candle's own `Var::set`, call
/// [`Compiled::refresh`].
pub struct Compiled<'m, M> {
    model: &'m M,
    params: Option<Params>,
    options: Options,
    state: Mutex<State>,
}

struct State {
    cache: Cache<Entry>,
    metrics: Metrics,
}

/// What runs for one signature.
enum Entry {
    Plan(Box<Bound>),
    /// The model itself, since it can't be captured.
    Eager,
}

/// A plan with the parameters that it reads.
struct Bound {
    plan: Plan,
    params: Vec<Tensor>,
    /// When the parameters were read in; `None` before the first time.
    prepared: Option<u64>,
}

impl<M: ModuleT> Compiled<'_, M> {
    /// The model on a batch, in inference.
    ///
    /// # Errors
    /// [`Error::CacheLimit`] for one signature too many, and what compiling and kernels fail with.
    pub fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { cache, metrics } = &mut *state;
        let signature = Signature {
            inputs: bind::signature(&[xs])?,
            frozen: Vec::new(),
        };
        match cache.get(&signature, metrics, |metrics| self.entry(xs, metrics))? {
            Entry::Plan(bound) => bound.run(xs),
            Entry::Eager => {
                metrics.fallbacks += 1;
                let _guard = tallow_tensor::no_grad::enter();
                Ok(self.model.forward_t(xs, false)?.detach())
            }
        }
    }

    fn entry(&self, xs: &Tensor, metrics: &mut Metrics) -> Result<Entry> {
        let mut capture = Capture::new().input("x", xs);
        if let Some(params) = &self.params {
            capture = capture.params(params);
        }
        let captured =
            capture.run_with_params(|inputs| Ok(vec![self.model.forward_t(&inputs[0], false)?]));
        let captured = match captured {
            Err(tallow_tensor::Error::GraphBreaks(_)) if !self.options.fullgraph => {
                return Ok(Entry::Eager);
            }
            captured => captured?,
        };
        let graph = compiler::inference_graph(captured.graph, &self.options)?;
        let plan = compiler::plan(&graph, &self.options, true, &[])?;
        metrics.kernels += plan.steps.len();
        metrics.planned_memory += plan.memory.planned;
        let tensors: HashMap<String, Tensor> = captured.params.into_iter().collect();
        let params = bind::parameters(&plan.params, &tensors)?;
        Ok(Entry::Plan(Box::new(Bound {
            plan,
            params,
            prepared: None,
        })))
    }

    /// Reads the parameters in again at the next run. Only needed after changing one with candle's own `Var::set`.
    pub fn refresh(&self) {
        inplace::touch();
    }

    /// What compilation did and cost so far.
    pub fn metrics(&self) -> Metrics {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.metrics.clone()
    }

    /// The model.
    pub fn model(&self) -> &M {
        self.model
    }
}

impl Bound {
    fn run(&mut self, xs: &Tensor) -> Result<Tensor> {
        let Self {
            plan,
            params,
            prepared,
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

impl<M: ModuleT> ModuleT for Compiled<'_, M> {
    fn forward_t(&self, xs: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        match train {
            true => self.model.forward_t(xs, true),
            false => Ok(self.forward(xs)?),
        }
    }
}
