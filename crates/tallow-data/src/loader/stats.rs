//! [`LoaderStats`]: what a loader has done, and what its reader waited for.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What a loader has handed out since it was made, in all its epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoaderStats {
    /// Samples in batches that were read.
    pub samples: u64,
    /// Batches that were read.
    pub batches: u64,
    /// Samples that could not be made and were left out.
    pub skipped: u64,
    /// How long the reader waited for batches. Without workers that is how long they took to make.
    pub wait: Duration,
    /// How long the batches took to make, in all workers together.
    pub busy: Duration,
}

impl LoaderStats {
    /// Samples a second that one worker makes, on average; 0 before the first batch.
    pub fn samples_per_worker_second(&self) -> f64 {
        match self.busy.is_zero() {
            true => 0.,
            false => self.samples as f64 / self.busy.as_secs_f64(),
        }
    }
}

/// Messages of skipped samples that are kept.
const KEPT: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Counters {
    samples: AtomicU64,
    batches: AtomicU64,
    skipped: AtomicU64,
    wait: AtomicU64,
    busy: AtomicU64,
    messages: Mutex<Vec<String>>,
}

impl Counters {
    pub(super) fn batch(&self, samples: usize) {
        self.samples.fetch_add(samples as u64, Relaxed);
        self.batches.fetch_add(1, Relaxed);
    }

    pub(super) fn skip(&self, message: String) {
        self.skipped.fetch_add(1, Relaxed);
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() < KEPT {
            messages.push(message);
        }
    }

    pub(super) fn waited(&self, time: Duration) {
        self.wait.fetch_add(nanoseconds(time), Relaxed);
    }

    pub(super) fn busy(&self, time: Duration) {
        self.busy.fetch_add(nanoseconds(time), Relaxed);
    }

    pub(super) fn skipped(&self) -> Vec<String> {
        let messages = self.messages.lock();
        messages.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn read(&self) -> LoaderStats {
        LoaderStats {
            samples: self.samples.load(Relaxed),
            batches: self.batches.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            wait: Duration::from_nanos(self.wait.load(Relaxed)),
            busy: Duration::from_nanos(self.busy.load(Relaxed)),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
