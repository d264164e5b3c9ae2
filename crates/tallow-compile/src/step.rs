//! [`StepCompiler`]: whole training steps as plans.

use std::collections::HashMap;

use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};
use tallow_tensor::{Capture, Params, inplace, memory};

use crate::bind::{self, Fed};
use crate::cache::{Cache, Signature};
use crate::eager::{self, EagerModule, Modules};
use crate::inference::output;
use crate::plan::{Frame, Plan};
use crate::{Error, KernelTime, Metrics, Options, Result, compiler};

/// Runs the forward pass, the loss and the backward pass of training steps as compiled plans, one a signature of
/// shapes and of frozen parameters and buffers.
///
/// Parameters are read from the model's own variables and gradients are handed out as tensors, so that any optimizer can
/// follow, and whatever changes a parameter between steps is honoured: there is no second copy to keep current.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use candle_nn::{Module, ModuleT};
/// use tallow_compile::{Options, StepCompiler};
/// use tallow_nn::Linear;
/// use tallow_tensor::{Params, ops};
///
/// let params = Params::f32_cpu();
/// let model = Linear::new(4, 3, params.builder())?;
/// let images = Tensor::randn(0f32, 1., (8, 4), &Device::Cpu)?;
/// let labels = Tensor::new(&[0u32, 1, 2, 0, 1, 2, 0, 1], &Device::Cpu)?;
///
/// let mut steps = StepCompiler::new(Options::default())?;
/// let step = steps.run(&params, &images, &labels, |images, labels| {
///     let outputs = model.forward_t(images, true)?;
///     Ok((ops::cross_entropy(&outputs, labels, &Default::default())?, outputs))
/// })?;
/// assert!(step.loss.is_finite());
/// let weight = &params.trainable()[0].1;
/// assert_eq!(step.gradients.get(weight).unwrap().dims(), weight.dims());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct StepCompiler {
    options: Options,
    cache: Cache<Entry>,
    metrics: Metrics,
    /// Memory of the gradients, shared by all plans.
    gradients: HashMap<String, Tensor>,
    measures: bool,
}

/// What runs for one signature.
enum Entry {
    Plan(Box<StepPlan>),
    /// The model itself, since it can't be captured, and why.
    Eager(String),
}

struct StepPlan {
    plan: Plan,
    params: Vec<Tensor>,
    /// The parameters that have gradients, and the memory that these are written to.
    trained: Vec<(Var, Tensor)>,
    /// The buffers that a step changes.
    buffers: Vec<Var>,
    /// The modules that run as they are.
    modules: Modules,
}

/// What a step gives.
pub struct Step {
    /// The loss.
    pub loss: f32,
    /// The model's outputs, not on the tape.
    pub outputs: Tensor,
    /// The gradients of the trainable parameters. Their memory is that of the next step's gradients as well: copy what
    /// must outlast it.
    pub gradients: GradStore,
}

impl StepCompiler {
    /// A compiler that has no plan yet.
    ///
    /// # Errors
    /// Options that can't be met, such as a precision that this CPU hasn't.
    pub fn new(options: Options) -> Result<Self> {
        options.check()?;
        Ok(Self {
            cache: Cache::new(options.cache_limit),
            metrics: Metrics::default(),
            gradients: HashMap::new(),
            measures: false,
            options,
        })
    }

    /// One step on a batch, without the update. `forward` gives the loss and the model's outputs; it is run when a new
    /// signature is met, and never again for that signature.
    ///
    /// Dropout draws from the thread's [`rng::state`](tallow_tensor::rng::state), as it does eagerly.
    ///
    /// # Errors
    /// A graph break with `fullgraph`, naming each; [`Error::CacheLimit`] for one signature too many;
    /// [`Error::LossNotScalar`], [`Error::NothingToTrain`]; operations, types or devices that plans can't take. Parameters
    /// and buffers are unchanged then.
    pub fn run(
        &mut self,
        params: &Params,
        images: &Tensor,
        targets: &Tensor,
        mut forward: impl FnMut(&Tensor, &Tensor) -> candle_core::Result<(Tensor, Tensor)>,
    ) -> Result<Step> {
        let Self {
            options,
            cache,
            metrics,
            gradients,
            measures,
        } = self;
        // Frozen buffers too: a batch norm with frozen statistics is another operation.
        let frozen = params.iter().filter(|entry| entry.frozen);
        let signature = Signature {
            inputs: bind::signature(&[images, targets])?,
            frozen: frozen.map(|entry| entry.name).collect(),
        };
        let entry = cache.get(&signature, metrics, |metrics| {
            entry(
                options,
                params,
                [images, targets],
                &mut forward,
                metrics,
                gradients,
            )
        })?;
        match entry {
            Entry::Plan(step) => {
                metrics.fallbacks += step.modules.len() as u64;
                step.plan.measure(*measures);
                step.run(params, images, targets)
            }
            Entry::Eager(reasons) => {
                metrics.fallbacks += 1;
                let _span = eager::span("", reasons);
                eager(images, targets, &mut forward)
            }
        }
    }

    /// What compilation did and cost so far.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether the next steps are timed kernel by kernel; see [`StepCompiler::kernel_times`].
    pub fn measure(&mut self, on: bool) {
        self.measures = on;
    }

    /// The time that each kernel took, over all timed steps.
    pub fn kernel_times(&self) -> Vec<KernelTime> {
        let plans = self.cache.plans().filter_map(|entry| match entry {
            Entry::Plan(step) => Some(&step.plan),
            Entry::Eager(_) => None,
        });
        plans.flat_map(Plan::kernel_times).collect()
    }
}

/// Captures a step and compiles it.
fn entry(
    options: &Options,
    params: &Params,
    [images, targets]: [&Tensor; 2],
    forward: &mut impl FnMut(&Tensor, &Tensor) -> candle_core::Result<(Tensor, Tensor)>,
    metrics: &mut Metrics,
    gradients: &mut HashMap<String, Tensor>,
) -> Result<Entry> {
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
        Err(tallow_tensor::Error::GraphBreaks(breaks)) if !options.fullgraph => {
            return Ok(Entry::Eager(eager::reasons(&breaks)));
        }
        captured => captured?,
    };
    memory::give_back();
    let step = compiler::training_graph(&captured.graph, options)?;
    let external: Vec<usize> = (2..2 + step.gradients.len()).collect();
    let modules = eager::modules(captured.opaque, true);
    let plan = compiler::plan(&step.graph, options, false, &external, &modules)?;
    metrics.kernels += plan.steps.len();
    metrics.planned_memory += plan.memory.planned;
    let tensors: HashMap<String, Tensor> = captured.params.into_iter().collect();
    let bound = bind::parameters(&plan.params, &tensors)?;
    let vars: HashMap<String, Var> = params.iter().map(|entry| (entry.name, entry.var)).collect();
    let var = |name: &String| {
        vars.get(name).cloned().ok_or_else(|| Error::Unsupported {
            operation: format!("parameter `{name}`"),
            module: String::new(),
            problem: "is not in the `Params` of the training".into(),
            remedy: "build the model from the builder of these `Params`",
        })
    };
    let mut trained = Vec::new();
    for name in &step.gradients {
        let var = var(name)?;
        if !gradients.contains_key(name) {
            gradients.insert(name.clone(), var.zeros_like()?);
        }
        trained.push((var, gradients[name].clone()));
    }
    let buffers = step.buffers.iter().map(var).collect::<Result<_>>()?;
    Ok(Entry::Plan(Box::new(StepPlan {
        plan,
        params: bound,
        trained,
        buffers,
        modules,
    })))
}

/// A step on candle's tape.
fn eager(
    images: &Tensor,
    targets: &Tensor,
    forward: &mut impl FnMut(&Tensor, &Tensor) -> candle_core::Result<(Tensor, Tensor)>,
) -> Result<Step> {
    let (loss, outputs) = forward(images, targets)?;
    if loss.elem_count() != 1 {
        return Err(Error::LossNotScalar {
            found: tallow_tensor::convert::tensor_type(&loss)?,
        });
    }
    Ok(Step {
        gradients: loss.backward()?,
        loss: loss.flatten_all()?.to_vec1::<f32>()?[0],
        outputs: outputs.detach(),
    })
}

impl StepPlan {
    fn run(&mut self, params: &Params, images: &Tensor, targets: &Tensor) -> Result<Step> {
        let fed = [bind::feed("x", images)?, bind::feed("targets", targets)?];
        self.compute(&fed)?;
        for (index, buffer) in self.buffers.iter().enumerate() {
            let place = 2 + self.trained.len() + index;
            if let Some((values, _)) = self.plan.output(place) {
                inplace::update(buffer, |buffer| {
                    buffer.copy_from_slice(values);
                    Ok(())
                })?;
            }
        }
        let loss = output(&self.plan, 0)?.to_scalar::<f32>()?;
        let mut gradients = empty()?;
        for (var, gradient) in &self.trained {
            gradients.insert(var, gradient.clone());
        }
        self.join_eager(params, &mut gradients)?;
        Ok(Step {
            loss,
            outputs: output(&self.plan, 1)?,
            gradients,
        })
    }

    /// Adds the gradients of the modules that ran as they are.
    fn join_eager(&self, params: &Params, gradients: &mut GradStore) -> Result<()> {
        for store in self.modules.iter().filter_map(EagerModule::take_gradients) {
            for (_, var) in params.trainable() {
                let Some(found) = store.get(&var) else {
                    continue;
                };
                let sum = match gradients.get(&var) {
                    Some(known) => (known + found)?,
                    None => found.clone(),
                };
                gradients.insert(&var, sum);
            }
        }
        Ok(())
    }

    /// Runs the plan on the parameters as they are, and writes the gradients.
    fn compute(&mut self, fed: &[Fed]) -> Result<()> {
        let Self {
            plan,
            params,
            trained,
            ..
        } = self;
        let gradients: Vec<Tensor> = trained
            .iter()
            .map(|(_, gradient)| gradient.clone())
            .collect();
        inplace::read_all(params, |params| {
            bind::with_inputs(fed, |inputs| {
                let mut result = Ok(());
                inplace::update_all(&gradients, &mut |outputs| {
                    result = plan.run(&mut Frame {
                        params,
                        inputs,
                        outputs,
                    });
                    Ok(())
                })?;
                result
            })
        })??
    }
}

/// A store without gradients; candle gives one only out of a backward pass.
fn empty() -> Result<GradStore> {
    let zero = Tensor::zeros((), candle_core::DType::F32, &Device::Cpu)?;
    let mut store = zero.backward()?;
    store.remove(&zero);
    Ok(store)
}
