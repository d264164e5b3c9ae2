//! Finding the operation from which a NaN or an infinity first came: a second run of the model, watched.
//!
//! A bad value spreads through everything behind it, so only the first one says something. Looking at every result
//! costs a pass over memory an operation; nothing is looked at outside [`first_in`].

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;

use candle_core::{CpuStorage, DType, Result, Storage, Tensor};
use tallow_graph::Op;

use crate::scope;

/// The operation whose result first held a value that is not finite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The path of the module that was running; empty outside any.
    pub module: String,
    /// The operation's name, such as `conv2d`.
    pub operation: &'static str,
    /// How many values of its result are NaN or infinite.
    pub count: usize,
}

thread_local! {
    static WATCHING: Cell<bool> = const { Cell::new(false) };
    static FIRST: RefCell<Option<Origin>> = const { RefCell::new(None) };
}

/// Runs `run`, and gives beside its result the first operation of [`crate::ops`] whose result held a NaN or an
/// infinity; `None` if there was none. Raw candle operations are not seen.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tallow_tensor::{nonfinite, ops, scope};
///
/// let xs = Tensor::new(&[1f32, 0.], &Device::Cpu)?;
/// let (_, origin) = nonfinite::first_in(|| {
///     let _module = scope::enter("norm");
///     let xs = ops::div(&xs, &xs)?; // 0 / 0
///     ops::relu(&xs)
/// });
/// let origin = origin.expect("a NaN");
/// assert_eq!((origin.module.as_str(), origin.operation, origin.count), ("norm", "div", 1));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn first_in<T>(run: impl FnOnce() -> T) -> (T, Option<Origin>) {
    let watch = Watch::begin();
    let result = run();
    let origin = FIRST.take();
    drop(watch);
    (result, origin)
}

/// How many values of a tensor are NaN or infinite; 0 for integers.
///
/// # Errors
/// Where candle can't read the values.
pub fn count(tensor: &Tensor) -> Result<usize> {
    if !tensor.dtype().is_float() {
        return Ok(0);
    }
    if let Some(count) = count_f32(tensor) {
        return Ok(count);
    }
    // Half types and f64 alike: f64 holds the values of all.
    let values = tensor.detach().flatten_all()?.to_dtype(DType::F64)?;
    let values = values.to_vec1::<f64>()?;
    Ok(values.iter().filter(|value| !value.is_finite()).count())
}

/// The count without a copy, for what nearly all tensors are: f32, contiguous, on the CPU.
fn count_f32(tensor: &Tensor) -> Option<usize> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(CpuStorage::F32(values)) = &*storage else {
        return None;
    };
    let (start, end) = layout.contiguous_offsets()?;
    let values = values.get(start..end)?;
    Some(values.iter().filter(|value| !value.is_finite()).count())
}

/// Looks at an operation's result, if somebody watches and nothing was found yet.
pub(crate) fn look(op: &Op, output: &Tensor) -> Result<()> {
    if !WATCHING.get() || FIRST.with_borrow(Option::is_some) {
        return Ok(());
    }
    let count = count(output)?;
    if count > 0 {
        FIRST.set(Some(Origin {
            module: scope::path(),
            operation: op.name(),
            count,
        }));
    }
    Ok(())
}

/// Watches until dropped, also by a panic.
struct Watch {
    was_watching: bool,
    _not_send: PhantomData<*const ()>,
}

impl Watch {
    fn begin() -> Self {
        FIRST.set(None);
        Self {
            was_watching: WATCHING.replace(true),
            _not_send: PhantomData,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHING.set(self.was_watching);
    }
}
