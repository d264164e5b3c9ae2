//! LAMB's numbers, and its arithmetic where there is no kernel.

use candle_core::{DType, Result, Tensor, Var};
use tallow_kernels::optimizer as kernels;

/// The numbers of one LAMB update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LambUpdate {
    /// The learning rate.
    pub lr: f64,
    /// The decay rate of the first moment.
    pub beta1: f64,
    /// The decay rate of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// The share of the parameter that is added to its step.
    pub weight_decay: f64,
    /// Whether the step is scaled to the parameter's norm.
    pub adapt: bool,
    /// Which update of this parameter it is, counted from 1.
    pub step: u64,
}

impl LambUpdate {
    pub(super) fn kernel(&self) -> kernels::Lamb {
        kernels::Lamb {
            lr: self.lr,
            beta1: self.beta1,
            beta2: self.beta2,
            eps: self.eps,
            weight_decay: self.weight_decay,
            adapt: self.adapt,
            step: self.step,
        }
    }
}

pub(super) fn lamb_portable(
    parameter: &Var,
    grad: &Tensor,
    exp_avg: &Var,
    exp_avg_sq: &Var,
    update: &LambUpdate,
) -> Result<()> {
    let step = update.step as f64;
    let m = exp_avg.as_detached_tensor();
    let m = (&m + (grad.sub(&m)? * (1.0 - update.beta1))?)?;
    let v = exp_avg_sq.as_detached_tensor();
    let v = ((v * update.beta2)? + (grad.sqr()? * (1.0 - update.beta2))?)?;
    let correction1 = 1.0 - update.beta1.powf(step);
    let correction2 = (1.0 - update.beta2.powf(step)).sqrt();
    let denominator = ((v.sqrt()? / correction2)? + update.eps)?;
    let value = parameter.as_detached_tensor();
    let direction = (&m / correction1)?.div(&denominator)?;
    let direction = (direction + (&value * update.weight_decay)?)?;
    let (length, step) = (norm(&value)?, norm(&direction)?);
    let adapted = update.adapt && length > 0.0 && step > 0.0;
    let trust = if adapted { length / step } else { 1.0 };
    exp_avg.set(&m)?;
    exp_avg_sq.set(&v)?;
    parameter.set(&(value - (direction * (update.lr * trust))?)?)
}

fn norm(tensor: &Tensor) -> Result<f64> {
    let squares = tensor.to_dtype(DType::F64)?.sqr()?.sum_all()?;
    Ok(squares.to_scalar::<f64>()?.sqrt())
}
