//! Modules that run as they are, in the middle of a plan: forward, and backward on candle's tape.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use tallow_graph::TensorType;
use tallow_tensor::{Break, OpaqueModule, convert, no_grad};
use tracing::span::EnteredSpan;

use crate::lower::Value;
use crate::{Error, Result};

/// The opaque modules of a plan, by their number.
pub(crate) type Modules = Arc<[EagerModule]>;

/// Modules as a capture found them; with `trains` their runs are kept on the tape.
pub(crate) fn modules(captured: Vec<OpaqueModule>, trains: bool) -> Modules {
    let modules = captured.into_iter().map(|module| EagerModule {
        reasons: reasons(&module.breaks),
        module,
        trains,
        run: Mutex::default(),
        gradients: Mutex::default(),
    });
    modules.collect()
}

/// One such module.
pub(crate) struct EagerModule {
    module: OpaqueModule,
    reasons: String,
    trains: bool,
    /// Input and output of the last run, on the tape.
    run: Mutex<Option<(Tensor, Tensor)>>,
    /// What the last backward pass gave.
    gradients: Mutex<Option<GradStore>>,
}

impl EagerModule {
    /// Writes what the module gives for `x`.
    pub(crate) fn forward(&self, x: Value<'_>, ty: &TensorType, out: &mut [f32]) -> Result<()> {
        let _span = span(&self.module.path, &self.reasons);
        let x = tensor(x, ty)?;
        if !self.trains {
            let _guard = no_grad::enter();
            return self.write(&self.module.forward(&x)?, out);
        }
        let x = match x.dtype().is_float() {
            true => Var::from_tensor(&x)?.into_inner(),
            false => x,
        };
        let y = self.module.forward(&x)?;
        self.write(&y, out)?;
        *lock(&self.run) = Some((x, y));
        Ok(())
    }

    /// Writes the gradient with respect to the input of the last run, and keeps those of the module's parameters.
    pub(crate) fn backward(&self, dy: &[f32], out: &mut [f32]) -> Result<()> {
        out.fill(0.0);
        let Some((x, y)) = lock(&self.run).take() else {
            return Ok(());
        };
        if !y.track_op() {
            return Ok(());
        }
        let dy = Tensor::from_slice(dy, y.shape(), &Device::Cpu)?;
        let gradients = (y * dy)?.sum_all()?.backward()?;
        if let Some(dx) = gradients.get(&x) {
            self.write(dx, out)?;
        }
        *lock(&self.gradients) = Some(gradients);
        Ok(())
    }

    /// The gradients of the last backward pass.
    pub(crate) fn take_gradients(&self) -> Option<GradStore> {
        lock(&self.gradients).take()
    }

    fn write(&self, value: &Tensor, out: &mut [f32]) -> Result<()> {
        let found = convert::tensor_type(value)?;
        if value.dtype() != DType::F32 || value.elem_count() != out.len() {
            return Err(Error::Unsupported {
                operation: "the layer".into(),
                module: self.module.path.clone(),
                problem: format!("gave {found}, and something else when it was compiled"),
                remedy: "let shapes depend on the input's shape alone",
            });
        }
        out.copy_from_slice(&value.flatten_all()?.to_vec1::<f32>()?);
        Ok(())
    }
}

/// Begins the span of what runs as it is, for profilers.
pub(crate) fn span(module: &str, reasons: &str) -> EnteredSpan {
    tracing::debug_span!(target: "tallow", "fallback", module = module, reason = reasons).entered()
}

/// Graph breaks in words.
pub(crate) fn reasons(breaks: &[Break]) -> String {
    let each = breaks.iter().map(ToString::to_string);
    each.collect::<Vec<_>>().join("\n")
}

fn tensor(x: Value<'_>, ty: &TensorType) -> Result<Tensor> {
    let shape = ty.shape.as_slice();
    Ok(match x {
        Value::Floats(x) => Tensor::from_slice(x, shape, &Device::Cpu)?,
        Value::Ints(x) => {
            let x = Tensor::from_slice(x, shape, &Device::Cpu)?;
            x.to_dtype(convert::candle_dtype(ty.dtype))?
        }
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
