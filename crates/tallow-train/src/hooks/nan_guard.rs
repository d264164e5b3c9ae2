//! [`NanGuard`]: what the check of the loss does not see.

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use tallow_tensor::nonfinite;

use crate::error::BadValue;
use crate::{Error, Hook, HookContext, Result};

/// Looks at every gradient before the update, and at every parameter after it, and ends the training with an error that
/// names the first one with NaN or infinity, its module, and how many there are.
///
/// A loss that is not finite ends a training also without this hook, with the module that made the first bad value; but
/// a finite loss can have gradients that are not (the root of zero), and a finite gradient can make a parameter overflow. In both
/// cases a step or a checkpoint too many is lost without this hook. It costs a pass over gradients and parameters a step.
///
/// Put it before the hooks that write checkpoints, so that no spoiled one is written. Compiled steps are checked alike.
///
/// ```
/// use tallow_train::hooks::NanGuard;
///
/// let hook = NanGuard::new();
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct NanGuard {
    updated: Vec<(String, Var)>,
}

impl NanGuard {
    /// A guard of gradients and updates.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Hook for NanGuard {
    fn on_gradients(
        &mut self,
        context: &mut HookContext<'_>,
        gradients: &mut GradStore,
    ) -> Result<()> {
        let mut parameters = context.params().trainable();
        parameters.retain(|(_, var)| gradients.get(var).is_some());
        let grads = parameters
            .iter()
            .filter_map(|(name, var)| Some((name.as_str(), gradients.get(var)?)));
        let spoiled = spoiled(grads)?;
        // The backward pass goes through the model from its end.
        if let Some((name, count)) = spoiled.last() {
            let cause = BadValue::Gradient {
                name: name.clone(),
                module: module_of(name),
                count: *count,
                spoiled: spoiled.len(),
            };
            return Err(error(context, context.step(), cause));
        }
        self.updated = parameters;
        Ok(())
    }

    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let updated = std::mem::take(&mut self.updated);
        let values = updated
            .iter()
            .map(|(name, var)| (name.as_str(), var.as_tensor()));
        if let Some((name, count)) = spoiled(values)?.into_iter().next() {
            let module = module_of(&name);
            let cause = BadValue::Update {
                name,
                module,
                count,
            };
            return Err(error(context, context.step() - 1, cause));
        }
        Ok(())
    }
}

/// Those of the tensors that hold bad values, and how many.
fn spoiled<'a>(
    tensors: impl Iterator<Item = (&'a str, &'a Tensor)>,
) -> Result<Vec<(String, usize)>> {
    let mut spoiled = Vec::new();
    for (name, tensor) in tensors {
        let count = nonfinite::count(tensor)?;
        if count > 0 {
            spoiled.push((name.to_string(), count));
        }
    }
    Ok(spoiled)
}

fn module_of(name: &str) -> String {
    name.rsplit_once('.')
        .map_or(String::new(), |(module, _)| module.to_string())
}

fn error(context: &HookContext<'_>, step: u64, cause: BadValue) -> Error {
    Error::Spoiled {
        step,
        epoch: context.epoch(),
        loss: context.loss().unwrap_or(f64::NAN),
        cause,
    }
}
