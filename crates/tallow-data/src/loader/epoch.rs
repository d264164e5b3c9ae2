//! [`Epoch`]: the batches of one epoch, as they are read.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::job::{self, Feed, Made};
use super::stats::Counters;
use super::watch::Watch;
use super::workers::Workers;
use super::{LoaderConfig, LoaderState, OnError};
use crate::{Error, Result, trace};

/// The batches of one epoch, in order: what [`Loader::batches`](super::Loader::batches) gives.
///
/// An `Err` is one failed batch; the next ones come all the same, except after [`Error::Hung`]. Dropping the iterator
/// stops the workers, and waits until each is done with the sample in its hands, or until the loader's `timeout`.
pub struct Epoch<B> {
    making: Making<B>,
    state: LoaderState,
    on_error: OnError,
    counters: Arc<Counters>,
    /// For profilers.
    reader: Reader,
}

/// What a profiler is told of who reads.
struct Reader {
    number: u64,
    batch: u64,
    workers: usize,
    prefetch: usize,
}

enum Making<B> {
    /// On the thread that asks.
    Here(Option<Feed<B>>, Box<Watch>),
    Workers(Workers<B>),
}

impl<B: Send + 'static> Epoch<B> {
    pub(super) fn new(
        feed: Feed<B>,
        config: &LoaderConfig,
        state: LoaderState,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        let reader = Reader {
            number: trace::reader(),
            batch: 0,
            workers: config.workers,
            prefetch: config.prefetch,
        };
        let making = match config.workers.min(config.prefetch) {
            0 => Making::Here(Some(feed), Box::default()),
            _ => Making::Workers(Workers::start(
                feed,
                config.workers,
                config.prefetch,
                config.timeout,
                reader.number,
            )?),
        };
        Ok(Self {
            making,
            state,
            on_error: config.on_error,
            counters,
            reader,
        })
    }

    /// Counts what was left out, and decides whether it was too much.
    fn accept(&mut self, made: Made<B>) -> Result<B> {
        let number = self.state.batch;
        self.state.batch += 1;
        let OnError::Skip { at_most } = self.on_error else {
            return made.batch;
        };
        let (samples, count) = (made.samples, made.skipped.len());
        let mut first = None;
        for error in made.skipped {
            self.state.skipped += 1;
            self.counters.skip(error.to_string());
            if self.state.skipped > at_most {
                return Err(Error::TooManySkipped {
                    skipped: self.state.skipped,
                    at_most,
                    last: Box::new(error),
                });
            }
            first.get_or_insert(error);
        }
        match first {
            Some(first) if samples == 0 => Err(Error::EmptyBatch {
                batch: number,
                count,
                first: Box::new(first),
            }),
            _ => made.batch,
        }
    }
}

impl<B> Epoch<B> {
    /// Where this reader stands: after the last batch that was read, however many have been made already.
    pub fn state(&self) -> LoaderState {
        self.state.clone()
    }
}

impl<B: Send + 'static> Iterator for Epoch<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Self::Item> {
        let flow = trace::flow(self.reader.number, self.reader.batch);
        let span = tracing::debug_span!(
            target: "tallow",
            "data_wait",
            batch = self.state.batch,
            flow,
            workers = self.reader.workers,
            prefetch = self.reader.prefetch,
            samples = tracing::field::Empty,
        )
        .entered();
        self.reader.batch += 1;
        let start = Instant::now();
        let made = match &mut self.making {
            Making::Here(feed, watch) => {
                job::next(feed, watch).map(|job| job::run(job, watch, flow))
            }
            Making::Workers(workers) => workers.next(),
        };
        self.counters.waited(start.elapsed());
        let made = made?;
        self.counters.busy(made.busy);
        let samples = made.samples;
        span.record("samples", samples);
        drop(span);
        let batch = self.accept(made);
        if batch.is_ok() {
            self.counters.batch(samples);
        }
        Some(batch)
    }
}

impl<B> fmt::Debug for Epoch<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
