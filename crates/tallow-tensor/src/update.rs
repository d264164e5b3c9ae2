//! Optimizer updates: one parameter, its gradient, and what the optimizer remembers of it, changed in place.
//!
//! Contiguous f32 parameters on the CPU are updated by kernels, AdamW and SGD in one pass over memory; others with candle's
//! arithmetic. The `*_all` functions update many parameters in one parallel section. Which parameters are updated, and where the moments are kept, is left to the optimizer.

use candle_core::{Error, Result, Tensor, Var};
use tallow_kernels::optimizer as kernels;

use crate::inplace;

mod lamb;
mod many;
mod muon;
mod vectors;

pub use lamb::LambUpdate;
pub use many::{Item, adamw_all, lamb_all, sgd_all};
pub use muon::{MuonUpdate, NewtonSchulz, muon};
pub use vectors::{add_scaled, approach, square_sum, swap};

use lamb::lamb_portable;

/// The numbers of one AdamW update, by the names of `torch.optim.AdamW`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWUpdate {
    /// The learning rate.
    pub lr: f64,
    /// The decay rate of the first moment.
    pub beta1: f64,
    /// The decay rate of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// The decoupled weight decay.
    pub weight_decay: f64,
    /// Which update of this parameter it is, counted from 1.
    pub step: u64,
}

/// The numbers of one SGD update, by the names of `torch.optim.SGD`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdUpdate {
    /// The learning rate.
    pub lr: f64,
    /// The share of the last step that is carried on.
    pub momentum: f64,
    /// The share by which a gradient is reduced on its way into the momentum.
    pub dampening: f64,
    /// Whether the step looks ahead along the momentum.
    pub nesterov: bool,
    /// The L2 penalty, added to the gradient.
    pub weight_decay: f64,
    /// Whether it is the first update: then the momentum buffer takes the gradient as it is.
    pub first: bool,
}

impl AdamWUpdate {
    fn kernel(&self) -> kernels::AdamW {
        kernels::AdamW {
            lr: self.lr,
            beta1: self.beta1,
            beta2: self.beta2,
            eps: self.eps,
            weight_decay: self.weight_decay,
            step: self.step,
        }
    }
}

impl SgdUpdate {
    fn kernel(&self) -> kernels::Sgd {
        kernels::Sgd {
            lr: self.lr,
            momentum: self.momentum,
            dampening: self.dampening,
            nesterov: self.nesterov,
            weight_decay: self.weight_decay,
        }
    }
}

/// Applies one AdamW update (Loshchilov and Hutter 2019) to `parameter` and to both moments, all of one shape and type.
///
/// # Errors
///
/// Shapes, types or devices that differ, a gradient that shares memory with the parameter, one variable for both
/// moments, or a `step` of 0.
pub fn adamw(
    parameter: &Var,
    grad: &Tensor,
    exp_avg: &Var,
    exp_avg_sq: &Var,
    update: &AdamWUpdate,
) -> Result<()> {
    check("adamw", parameter, grad, &[exp_avg, exp_avg_sq])?;
    // The same variable twice would wait for itself.
    if exp_avg.id() == exp_avg_sq.id() {
        return Err(Error::msg(
            "adamw: the two moments are one variable; give each its own",
        ));
    }
    if update.step == 0 {
        return Err(Error::msg(
            "adamw: updates are counted from 1, found step 0",
        ));
    }
    if !inplace::is_supported(parameter) {
        return adamw_portable(parameter, grad, exp_avg, exp_avg_sq, update);
    }
    let config = update.kernel();
    inplace::zip2(parameter, grad, |parameter, grad| {
        inplace::update(exp_avg, |m| {
            inplace::update(exp_avg_sq, |v| {
                kernels::adamw(&config, parameter, grad, m, v).map_err(Error::wrap)
            })
        })
    })
}

/// Applies one SGD update to `parameter` and, where there is momentum, to its buffer, all of one shape and type.
///
/// # Errors
///
/// Shapes, types or devices that differ, a gradient that shares memory with the parameter, or a momentum without a
/// buffer.
pub fn sgd(parameter: &Var, grad: &Tensor, buffer: Option<&Var>, update: &SgdUpdate) -> Result<()> {
    check("sgd", parameter, grad, buffer.as_slice())?;
    let buffer = match buffer {
        _ if update.momentum == 0.0 => None,
        Some(buffer) => Some(buffer),
        None => {
            return Err(Error::msg(
                "sgd: an update with momentum needs a momentum buffer",
            ));
        }
    };
    if !inplace::is_supported(parameter) {
        return sgd_portable(parameter, grad, buffer, update);
    }
    let config = update.kernel();
    inplace::zip2(parameter, grad, |parameter, grad| {
        let mut run = |buffer: &mut [f32]| {
            kernels::sgd(&config, parameter, grad, buffer, update.first).map_err(Error::wrap)
        };
        match buffer {
            Some(buffer) => inplace::update(buffer, run),
            None => run(&mut []),
        }
    })
}

/// PyTorch's order of operations, `_single_tensor_adamw`.
fn adamw_portable(
    parameter: &Var,
    grad: &Tensor,
    exp_avg: &Var,
    exp_avg_sq: &Var,
    update: &AdamWUpdate,
) -> Result<()> {
    let AdamWUpdate {
        lr,
        beta1,
        beta2,
        eps,
        weight_decay,
        step,
    } = *update;
    let step = step as f64;
    let m = exp_avg.as_detached_tensor();
    let m = (&m + (grad.sub(&m)? * (1.0 - beta1))?)?;
    let v = ((exp_avg_sq.as_detached_tensor() * beta2)? + (grad.sqr()? * (1.0 - beta2))?)?;
    let correction1 = 1.0 - beta1.powf(step);
    let correction2 = (1.0 - beta2.powf(step)).sqrt();
    let denominator = ((v.sqrt()? / correction2)? + eps)?;
    let decayed = (parameter.as_detached_tensor() * (1.0 - lr * weight_decay))?;
    let moved = (decayed - (m.div(&denominator)? * (lr / correction1))?)?;
    exp_avg.set(&m)?;
    exp_avg_sq.set(&v)?;
    parameter.set(&moved)
}

/// PyTorch's order of operations, `_single_tensor_sgd`.
fn sgd_portable(
    parameter: &Var,
    grad: &Tensor,
    buffer: Option<&Var>,
    update: &SgdUpdate,
) -> Result<()> {
    let value = parameter.as_detached_tensor();
    let grad = if update.weight_decay == 0.0 {
        grad.clone()
    } else {
        (grad + (&value * update.weight_decay)?)?
    };
    let change = match buffer {
        None => grad,
        Some(buffer) => {
            let carried = if update.first {
                grad.clone()
            } else {
                let old = (buffer.as_detached_tensor() * update.momentum)?;
                (old + (&grad * (1.0 - update.dampening))?)?
            };
            buffer.set(&carried)?;
            if update.nesterov {
                (grad + (carried * update.momentum)?)?
            } else {
                carried
            }
        }
    };
    parameter.set(&(value - (change * update.lr)?)?)
}

fn check(name: &str, parameter: &Var, grad: &Tensor, state: &[&Var]) -> Result<()> {
    let state = state.iter().map(|var| ("state", var.as_tensor()));
    for (what, tensor) in std::iter::once(("gradient", grad)).chain(state) {
        if tensor.shape() != parameter.shape() || tensor.dtype() != parameter.dtype() {
            return Err(Error::msg(format!(
                "{name}: a {what} of {:?} {} for a parameter of {:?} {}; both must be alike",
                tensor.dims(),
                tensor.dtype().as_str(),
                parameter.dims(),
                parameter.dtype().as_str(),
            )));
        }
    }
    Ok(())
}
