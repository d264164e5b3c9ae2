//! Changing parameters in place, outside the tape: what optimizers are built on.
//!
//! candle's tensors are immutable but for in-place operations; [`update`] and [`zip2`] run a closure as one, on the
//! tensor's own memory. Only contiguous f32 tensors on the CPU; [`candle_core::Var::set`] serves everything else.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use candle_core::{
    CpuStorage, DType, Error, InplaceOp1, InplaceOp2, Layout, Result, Storage, Tensor, bail,
};

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// A number that grows whenever this process changes a parameter or buffer through Tallow. Who keeps something made from
/// parameters compares it with what it was then.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// Says that a parameter was changed by other means, such as candle's [`candle_core::Var::set`].
pub fn touch() {
    GENERATION.fetch_add(1, Ordering::Release);
}

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
    touch();
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
    touch();
    param.inplace_op2(&grad, &Zip2(RefCell::new(Some(f))))
}

/// Lets `f` read the elements of several tensors at once, each row-major.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tallow_tensor::inplace;
///
/// let (a, b) = (Tensor::new(&[1f32, 2.], &Device::Cpu)?, Tensor::new(3f32, &Device::Cpu)?);
/// let total: f32 = inplace::read_all(&[a, b], |slices| slices.concat().iter().sum())?;
/// assert_eq!(total, 6.0);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// Where [`is_supported`] says no for one of them.
pub fn read_all<R>(tensors: &[Tensor], f: impl FnOnce(&[&[f32]]) -> R) -> Result<R> {
    let guards: Vec<_> = tensors.iter().map(Tensor::storage_and_layout).collect();
    let mut slices = Vec::with_capacity(tensors.len());
    for (storage, layout) in &guards {
        match (&**storage, layout.contiguous_offsets()) {
            (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) => {
                slices.push(&values[start..end]);
            }
            _ => return Err(unsupported()),
        }
    }
    Ok(f(&slices))
}

/// Lets `f` change the elements of several tensors at once, each row-major; no two may share memory.
///
/// # Errors
/// Where [`is_supported`] says no for one of them, and whatever `f` returns.
pub fn update_all(
    tensors: &[Tensor],
    f: &mut dyn FnMut(&mut [&mut [f32]]) -> Result<()>,
) -> Result<()> {
    update_rest(tensors, Vec::with_capacity(tensors.len()), f)
}

/// Opens one tensor after the other, each inside the one before.
fn update_rest<'a>(
    tensors: &[Tensor],
    mut open: Vec<&'a mut [f32]>,
    f: &mut dyn FnMut(&mut [&mut [f32]]) -> Result<()>,
) -> Result<()> {
    let Some((first, rest)) = tensors.split_first() else {
        return f(&mut open);
    };
    update(first, |values| {
        let mut open: Vec<&mut [f32]> = open;
        open.push(values);
        update_rest(rest, open, f)
    })
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
