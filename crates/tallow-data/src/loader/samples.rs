//! [`Samples`]: batches of any source, sample by sample: load, change, add to the batch.

use std::iter::Fuse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tallow_tensor::rng::{self, Purpose, Stream};

use super::job::{Feed, Job, Made, Recipe};
use super::watch::Watch;
use super::{LoaderConfig, OnError};
use crate::batch::ended_before;
use crate::source::{Items, Pass, Source};
use crate::{Error, Result, trace};

/// How samples become a batch.
pub(super) trait Collect<T>: Send + Sync + 'static {
    /// A batch that is being filled.
    type Part;
    type Batch;

    fn begin(&self, size: usize) -> Self::Part;
    fn add(&self, part: &mut Self::Part, sample: T) -> Result<()>;
    fn finish(&self, part: Self::Part) -> Result<Self::Batch>;
}

/// The batches of a source, each sample changed by `change`.
pub(super) struct Samples<S, F, C>(Arc<Parts<S, F, C>>);

struct Parts<S, F, C> {
    source: S,
    change: F,
    collect: C,
    config: LoaderConfig,
}

impl<S, F, C> Samples<S, F, C> {
    pub(super) fn new(source: S, change: F, collect: C, config: LoaderConfig) -> Self {
        Self(Arc::new(Parts {
            source,
            change,
            collect,
            config,
        }))
    }
}

impl<S, T, F, C> Recipe<C::Batch> for Samples<S, F, C>
where
    S: Source,
    F: Fn(S::Sample, &mut Stream) -> Result<T> + Send + Sync + 'static,
    C: Collect<T>,
    T: 'static,
{
    fn open(&self, epoch: u64, done: u64) -> Result<Feed<C::Batch>> {
        let parts = Arc::clone(&self.0);
        let items = parts.source.items(&parts.config.pass(epoch))?;
        let mut lists = Lists {
            items: items.fuse(),
            next: 0,
            config: parts.config.clone(),
        };
        let mut passed = 0;
        Ok(Box::new(move |watch| {
            watch.begin("reading the items of", Arc::from("a source"));
            while passed < done && !watch.stopped() {
                if lists.next().is_none() {
                    let found = std::mem::replace(&mut passed, done);
                    return Some(Box::new(move |_| Made::failed(ended_before(done, found))));
                }
                passed += 1;
            }
            let list = lists.next()?;
            let parts = Arc::clone(&parts);
            let job: Job<C::Batch> = Box::new(move |watch| parts.make(epoch, list, watch));
            Some(job)
        }))
    }

    fn samples(&self) -> Option<usize> {
        self.0.source.len_hint(&self.0.config.pass(0))
    }
}

impl LoaderConfig {
    fn pass(&self, epoch: u64) -> Pass {
        Pass {
            seed: self.seed,
            epoch,
            shuffle: self.shuffle,
            shard: self.shard,
            even: self.drop_last,
        }
    }
}

/// The items of one batch, and the place of the first in the order of the epoch.
struct List<I> {
    first: u64,
    items: Vec<Result<I>>,
}

struct Lists<I> {
    items: Fuse<Items<I>>,
    next: u64,
    config: LoaderConfig,
}

impl<I> Iterator for Lists<I> {
    type Item = List<I>;

    fn next(&mut self) -> Option<List<I>> {
        let size = self.config.batch_size;
        let mut items = Vec::with_capacity(size);
        items.extend(self.items.by_ref().take(size));
        if items.len() < size && self.config.drop_last {
            // Samples may be left over, but not what tells that there should have been more of them.
            items.retain(|item| self.config.on_error == OnError::Fail && item.is_err());
        }
        let first = self.next;
        self.next += items.len() as u64;
        (!items.is_empty()).then_some(List { first, items })
    }
}

impl<S, F, C> Parts<S, F, C> {
    fn make<T>(&self, epoch: u64, list: List<S::Item>, watch: &Watch) -> Made<C::Batch>
    where
        S: Source,
        F: Fn(S::Sample, &mut Stream) -> Result<T>,
        C: Collect<T>,
    {
        let mut part = self.collect.begin(list.items.len());
        let mut samples = 0;
        let mut skipped = Vec::new();
        for (place, item) in (list.first..).zip(list.items) {
            if watch.stopped() {
                return Made::failed(Error::custom("the loader was dropped"));
            }
            let added = item.and_then(|item| self.add(epoch, place, item, &mut part, watch));
            match (added, self.config.on_error) {
                (Ok(()), _) => samples += 1,
                (Err(error), OnError::Fail) => return Made::failed(error),
                (Err(error), OnError::Skip { .. }) => skipped.push(error),
            }
        }
        watch.begin("collating", Arc::from("a batch"));
        let batch = match samples {
            0 => Err(Error::custom("a batch without samples")),
            _ => trace::stage("collate", || self.collect.finish(part)),
        };
        Made {
            batch,
            samples,
            skipped,
            busy: Duration::ZERO,
        }
    }

    /// One sample, from its item into the batch; an error or a panic names it.
    fn add<T>(
        &self,
        epoch: u64,
        place: u64,
        item: S::Item,
        part: &mut C::Part,
        watch: &Watch,
    ) -> Result<()>
    where
        S: Source,
        F: Fn(S::Sample, &mut Stream) -> Result<T>,
        C: Collect<T>,
    {
        let mut name: Arc<str> = Arc::from("a sample");
        // What a panic leaves half-done is dropped with it: the sample is added to the batch after all user code.
        let sample = catch_unwind(AssertUnwindSafe(|| {
            name = self.source.describe(&item).into();
            watch.begin("reading", name.clone());
            let of_order = || place * self.config.shard.of as u64 + self.config.shard.rank as u64;
            let index = self.source.key(&item).unwrap_or_else(of_order);
            let sample = trace::stage("read and decode", || self.source.load(item))?;
            watch.begin("changing", name.clone());
            let key = rng::key(self.config.seed, Purpose::Augment, epoch, index);
            trace::stage("change", || (self.change)(sample, &mut Stream::new(key)))
        }));
        let sample = sample.unwrap_or_else(|panic| Err(Error::panicked(&*panic)));
        let added =
            sample.and_then(|sample| trace::stage("collate", || self.collect.add(part, sample)));
        added.map_err(|error| Error::sample(name.to_string(), error))
    }
}
