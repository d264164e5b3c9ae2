//! Running a model without a tape: for evaluation and inference, where nobody will ask for gradients.
//!
//! candle records how a value was made as soon as a variable is among its inputs, and the record holds every
//! intermediate value for as long as the result lives. Inside [`enter`], each operation of [`crate::ops`] lets go of
//! its record at once, so that an intermediate value is freed when the model drops it. Raw candle operations
//! record as always.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
}

/// Keeps no tape on this thread until the guard is dropped. PyTorch's `torch.no_grad()`.
///
/// ```
/// use candle_core::{Device, Var};
/// use tallow_tensor::{no_grad, ops};
///
/// let weight = Var::new(&[1f32, -2.], &Device::Cpu)?;
/// let taped = ops::relu(&weight)?;
/// let free = {
///     let _guard = no_grad::enter();
///     ops::relu(&weight)?
/// };
/// assert!(taped.track_op() && !free.track_op());
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn enter() -> NoGradGuard {
    NoGradGuard {
        was_active: ACTIVE.replace(true),
        _not_send: PhantomData,
    }
}

/// Whether this thread keeps no tape at the moment.
pub fn is_active() -> bool {
    ACTIVE.get()
}

/// Goes back to the state before [`enter`] when dropped.
#[must_use = "the tape is kept again when the guard is dropped; bind it to a name, not to `_`"]
#[derive(Debug)]
pub struct NoGradGuard {
    was_active: bool,
    // The flag is the thread's own, so the guard must stay on it.
    _not_send: PhantomData<*const ()>,
}

impl Drop for NoGradGuard {
    fn drop(&mut self) {
        ACTIVE.set(self.was_active);
    }
}
