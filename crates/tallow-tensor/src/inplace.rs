//! Changing parameters in place, outside the tape: what optimizers are built on.
//!
//! candle's tensors are immutable but for in-place operations; [`update`] and [`zip2`] run a closure as one, on the
//! tensor's own memory. Only contiguous f32 tensors on the CPU; [`candle_core::Var::set`] serves everything else.

use std::cell::RefCell;

use candle_core::{CpuStorage, DType, Error, InplaceOp1, InplaceOp2, Layout, Result, Tensor, bail};

/// Whether [`update`] and [`zip2`] can change `param`: contiguous, f32, on the CPU.
pub fn is_supported(param: &Tensor) -> bool {
    param.device().is_cpu() && param.dtype() == DType::F32 && param.is_contiguous()
}

/// Lets `f` change the elements of `param`, row-major.
///
/// Every tensor that shares the memory (clones, views, the tape) sees the change, so don't call this between a
/// forward and its backward.
///
/// ```
/// use candle_core::{Device, Var};
/// use tallow_tensor::inplace;
///
/// let weight = Var::new(&[1f32, 2.], &Device::Cpu)?;
/// inplace::update(&weight, |values| {
///     values.iter_mut().for_each(|v| *v *= 2.);
///     Ok(())
/// })?;
/// assert_eq!(weight.to_vec1::<f32>()?, [2., 4.]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// Where [`is_supported`] says no, and whatever `f` returns.
pub fn update(param: &Tensor, f: impl FnOnce(&mut [f32]) -> Result<()>) -> Result<()> {
    check("param", param)?;
    param.inplace_op1(&Update(RefCell::new(Some(f))))
}

/// Lets `f` change the elements of `param` given those of `grad`, both row-major and as many.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use tallow_tensor::inplace;
///
/// let weight = Var::new(&[1f32, 2.], &Device::Cpu)?;
/// let grad = Tensor::new(&[10f32, 20.], &Device::Cpu)?;
/// inplace::zip2(&weight, &grad, |values, grads| {
///     values.iter_mut().zip(grads).for_each(|(v, g)| *v -= 0.1 * g);
///     Ok(())
/// })?;
/// assert_eq!(weight.to_vec1::<f32>()?, [0., 0.]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// Where [`is_supported`] says no for `param`, `grad` differs in shape, type or device, or shares the memory of
/// `param`, and whatever `f` returns.
pub fn zip2(
    param: &Tensor,
    grad: &Tensor,
    f: impl FnOnce(&mut [f32], &[f32]) -> Result<()>,
) -> Result<()> {
    check("param", param)?;
    let grad = grad.contiguous()?;
    check("grad", &grad)?;
    if param.dims() != grad.dims() {
        bail!(
            "a parameter of shape {:?} can't be updated with a gradient of shape {:?}; they must be equal",
            param.dims(),
            grad.dims()
        );
    }
    param.inplace_op2(&grad, &Zip2(RefCell::new(Some(f))))
}

fn check(role: &str, tensor: &Tensor) -> Result<()> {
    if is_supported(tensor) {
        return Ok(());
    }
    bail!(
        "{role} can't be read or changed in place: it is {:?} on {:?}, contiguous: {}; only contiguous f32 tensors on the CPU can",
        tensor.dtype(),
        tensor.device().location(),
        tensor.is_contiguous()
    )
}

/// The operation runs once, and takes its closure then.
struct Update<F>(RefCell<Option<F>>);

impl<F: FnOnce(&mut [f32]) -> Result<()>> InplaceOp1 for Update<F> {
    fn name(&self) -> &'static str {
        "update in place"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        match self.0.take() {
            Some(f) => f(elements_mut(storage, layout)?),
            None => Ok(()),
        }
    }
}

struct Zip2<F>(RefCell<Option<F>>);

impl<F: FnOnce(&mut [f32], &[f32]) -> Result<()>> InplaceOp2 for Zip2<F> {
    fn name(&self) -> &'static str {
        "update in place"
    }

    fn cpu_fwd(
        &self,
        param: &mut CpuStorage,
        param_layout: &Layout,
        grad: &CpuStorage,
        grad_layout: &Layout,
    ) -> Result<()> {
        let grad = match (grad, grad_layout.contiguous_offsets()) {
            (CpuStorage::F32(values), Some((start, end))) => &values[start..end],
            _ => return Err(unsupported()),
        };
        match self.0.take() {
            Some(f) => f(elements_mut(param, param_layout)?, grad),
            None => Ok(()),
        }
    }
}

fn elements_mut<'a>(storage: &'a mut CpuStorage, layout: &Layout) -> Result<&'a mut [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(values), Some((start, end))) => Ok(&mut values[start..end]),
        _ => Err(unsupported()),
    }
}

fn unsupported() -> Error {
    Error::Msg("only contiguous f32 tensors on the CPU can be changed in place".to_string())
}
