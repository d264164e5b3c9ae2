//! What passes between a source, workers and a reader: [`Feed`] gives [`Job`]s, a job gives a [`Made`] batch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::watch::Watch;
use crate::{Error, Result, trace};

/// Makes one batch. May run on any thread, at the same time as others.
pub(super) type Job<B> = Box<dyn FnOnce(&Watch) -> Made<B> + Send>;

/// Gives the batches of an epoch in order, as work to be done. Runs on one thread at a time.
pub(super) type Feed<B> = Box<dyn FnMut(&Watch) -> Option<Job<B>> + Send>;

/// Knows the batches of every epoch.
pub(super) trait Recipe<B>: Send + Sync {
    /// The batches of an epoch after the first `done`.
    fn open(&self, epoch: u64, done: u64) -> Result<Feed<B>>;

    /// The samples of an epoch, if that is known beforehand.
    fn samples(&self) -> Option<usize>;
}

/// A batch, or what became of it.
pub(super) struct Made<B> {
    pub(super) batch: Result<B>,
    /// Samples in it.
    pub(super) samples: usize,
    /// What went wrong with samples that are left out, in order.
    pub(super) skipped: Vec<Error>,
    pub(super) busy: Duration,
}

impl<B> Made<B> {
    pub(super) fn failed(error: Error) -> Self {
        Self {
            batch: Err(error),
            samples: 0,
            skipped: Vec::new(),
            busy: Duration::ZERO,
        }
    }
}

/// The next job. A panic in the source is one last job, which fails.
pub(super) fn next<B: 'static>(feed: &mut Option<Feed<B>>, watch: &Watch) -> Option<Job<B>> {
    let open = feed.as_mut()?;
    let _span = tracing::trace_span!(target: "tallow", "items").entered();
    // After a panic the feed is not touched again, so nothing half-done can be seen.
    match catch_unwind(AssertUnwindSafe(|| open(watch))) {
        Ok(Some(job)) => Some(job),
        Ok(None) => {
            *feed = None;
            None
        }
        Err(panic) => {
            *feed = None;
            let error = Error::panicked(&*panic);
            Some(Box::new(|_| Made::failed(error)))
        }
    }
}

/// Does a job and measures it. A panic is a batch that failed. `flow` tells profilers which batch it is.
pub(super) fn run<B>(job: Job<B>, watch: &Watch, flow: u64) -> Made<B> {
    let span = tracing::debug_span!(
        target: "tallow",
        "batch",
        flow,
        samples = tracing::field::Empty,
    )
    .entered();
    let start = Instant::now();
    let made = catch_unwind(AssertUnwindSafe(|| job(watch)));
    watch.idle();
    let made = made.unwrap_or_else(|panic| Made::failed(Error::panicked(&*panic)));
    span.record("samples", made.samples);
    trace::tell_stages();
    Made {
        busy: start.elapsed(),
        ..made
    }
}
