//! Muon: momentum that is made orthogonal before it is followed.

use candle_core::{DType, Error, Result, Tensor, Var};
use tallow_kernels::optimizer as kernels;
pub use tallow_kernels::optimizer::NewtonSchulz;

use super::check;
use crate::{inplace, trace};

/// The numbers of one Muon update, by the names of `torch.optim.Muon`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MuonUpdate {
    /// The learning rate of the decay.
    pub lr: f64,
    /// The learning rate of the step, adjusted to the matrix.
    pub step_lr: f64,
    /// The share of the momentum that is carried on.
    pub momentum: f64,
    /// Whether the step looks ahead along the momentum.
    pub nesterov: bool,
    /// The decoupled weight decay.
    pub weight_decay: f64,
    /// How the step is made orthogonal.
    pub newton_schulz: NewtonSchulz,
}

/// Applies one Muon update (Jordan et al. 2024) to `parameter`, of two dimensions or more, and to its momentum, all of one shape
/// and type. Dimensions after the first are one: a convolution's `[out, in, h, w]` is a matrix `[out, in h w]`.
///
/// # Errors
///
/// A parameter of less than two dimensions; shapes, types or devices that differ.
pub fn muon(parameter: &Var, grad: &Tensor, buffer: &Var, update: &MuonUpdate) -> Result<()> {
    check("muon", parameter, grad, &[buffer])?;
    if parameter.rank() < 2 {
        return Err(Error::msg(format!(
            "muon: a parameter of shape {:?} is no matrix; leave it to another optimizer",
            parameter.dims()
        )));
    }
    // Beside the momentum, each step of the iteration is three products of a matrix and its smaller square.
    let smaller = parameter.dims()[0].min(parameter.elem_count() / parameter.dims()[0].max(1));
    let flops = 6 * smaller as u64 * u64::from(update.newton_schulz.steps);
    let _span = trace::update("muon", || (1, parameter.elem_count()), 1, flops);
    let rows = parameter.dims()[0];
    let shape = [rows, parameter.elem_count() / rows.max(1)];
    if !inplace::is_supported(parameter) {
        return muon_portable(parameter, grad, buffer, shape, update);
    }
    let config = kernels::Muon {
        lr: update.lr,
        step_lr: update.step_lr,
        momentum: update.momentum,
        nesterov: update.nesterov,
        weight_decay: update.weight_decay,
        newton_schulz: update.newton_schulz,
    };
    inplace::zip2(parameter, grad, |parameter, grad| {
        inplace::update(buffer, |buffer| {
            kernels::muon(&config, shape, parameter, grad, buffer).map_err(Error::wrap)
        })
    })
}

/// PyTorch's order of operations, `_single_tensor_muon`.
fn muon_portable(
    parameter: &Var,
    grad: &Tensor,
    buffer: &Var,
    [rows, columns]: [usize; 2],
    update: &MuonUpdate,
) -> Result<()> {
    let carried = buffer.as_detached_tensor();
    let carried = (&carried + (grad.sub(&carried)? * (1.0 - update.momentum))?)?;
    let step = if update.nesterov {
        (grad + (carried.sub(grad)? * update.momentum)?)?
    } else {
        carried.clone()
    };
    let step = orthogonal(&step.reshape((rows, columns))?, &update.newton_schulz)?;
    let step = step.reshape(parameter.shape())?;
    let kept = (parameter.as_detached_tensor() * (1.0 - update.lr * update.weight_decay))?;
    buffer.set(&carried)?;
    parameter.set(&(kept - (step * update.step_lr)?)?)
}

fn orthogonal(matrix: &Tensor, config: &NewtonSchulz) -> Result<Tensor> {
    let tall = matrix.dim(0)? > matrix.dim(1)?;
    let squares = matrix.to_dtype(DType::F64)?.sqr()?.sum_all()?;
    let norm = squares.to_scalar::<f64>()?.sqrt().max(config.eps);
    let mut x = (matrix / norm)?;
    if tall {
        x = x.t()?.contiguous()?;
    }
    let [a, b, c] = config.coefficients;
    for _ in 0..config.steps {
        let gram = x.matmul(&x.t()?.contiguous()?)?;
        let polynomial = ((&gram * b)? + (gram.matmul(&gram)? * c)?)?;
        x = ((&x * a)? + polynomial.matmul(&x)?)?;
    }
    if tall { x.t()?.contiguous() } else { Ok(x) }
}
