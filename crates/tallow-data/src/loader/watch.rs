//! [`Watch`]: what a worker is doing, for whoever waits for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What one worker is doing, and whether it should go on.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Counts up whenever the worker turns to something else.
    steps: AtomicU64,
    doing: Mutex<Option<Doing>>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug, Clone)]
pub(super) struct Doing {
    pub(super) stage: &'static str,
    pub(super) sample: Arc<str>,
}

impl Watch {
    pub(super) fn new(stop: Arc<AtomicBool>) -> Self {
        Self {
            stop,
            ..Self::default()
        }
    }

    pub(super) fn begin(&self, stage: &'static str, sample: Arc<str>) {
        self.set(Some(Doing { stage, sample }));
    }

    /// The worker waits, on no user code.
    pub(super) fn idle(&self) {
        self.set(None);
    }

    /// True once nobody will read what the worker makes.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Acquire)
    }

    pub(super) fn doing(&self) -> Option<Doing> {
        let doing = self.doing.lock();
        doing.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, doing: Option<Doing>) {
        let mut held = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        *held = doing;
        self.steps.fetch_add(1, Ordering::Release);
    }
}
