//! The recorder: while one is active on a thread, every operation of `ops` writes a node of a graph.
//!
//! Operations call [`node`] when they are done. It costs one look at a thread-local flag as long as nobody records.
//! Who records, and what a graph break is, is the business of [`capture`](mod@crate::capture).

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;

use candle_core::Tensor;
use tallow_graph::Op;

use crate::capture::Recorder;

thread_local! {
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
    static PAUSED: Cell<bool> = const { Cell::new(false) };
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Whether a recorder is active on this thread, paused or not.
///
/// Operations with a side effect (the running statistics of batch normalisation) must not have it then: a capture
/// leaves the model as it was.
pub fn is_active() -> bool {
    ACTIVE.get()
}

/// Records that `op`, reading `inputs` in the order of its roles, gave `output`. Does nothing without a recorder.
pub fn node(op: Op, inputs: &[&Tensor], output: &Tensor) {
    if !ACTIVE.get() || PAUSED.get() {
        return;
    }
    RECORDER.with_borrow_mut(|recorder| {
        if let Some(recorder) = recorder {
            recorder.node(op, inputs, output);
        }
    });
}

/// Suspends recording until the guard is dropped, for an operation that is built from other operations of `ops` and
/// is recorded as one.
pub fn pause() -> PauseGuard {
    PauseGuard {
        was_paused: PAUSED.replace(true),
        _not_send: PhantomData,
    }
}

/// Resumes recording when dropped; see [`pause`].
#[must_use = "recording resumes when the guard is dropped; bind it to a name, not to `_`"]
#[derive(Debug)]
pub struct PauseGuard {
    was_paused: bool,
    // The flag is the thread's own, so the guard must stay on it.
    _not_send: PhantomData<*const ()>,
}

impl Drop for PauseGuard {
    fn drop(&mut self) {
        PAUSED.set(self.was_paused);
    }
}

/// Whether a recorder is active and suspended.
pub(crate) fn is_paused() -> bool {
    PAUSED.get()
}

/// The recorder, where one is active, paused or not.
pub(crate) fn with_active<T>(f: impl FnOnce(&mut Recorder) -> T) -> Option<T> {
    if !ACTIVE.get() {
        return None;
    }
    RECORDER.with_borrow_mut(|recorder| recorder.as_mut().map(f))
}

/// Records `run` with `recorder` and gives the recorder back. The recorder is removed even if `run` panics.
pub(crate) fn with_recorder<T>(recorder: Recorder, run: impl FnOnce() -> T) -> (T, Recorder) {
    struct Remove;
    impl Drop for Remove {
        fn drop(&mut self) {
            ACTIVE.set(false);
            RECORDER.with_borrow_mut(|slot| *slot = None);
        }
    }
    RECORDER.with_borrow_mut(|slot| *slot = Some(recorder));
    ACTIVE.set(true);
    let remove = Remove;
    let result = run();
    let recorder = RECORDER.with_borrow_mut(Option::take).unwrap_or_default();
    drop(remove);
    (result, recorder)
}
