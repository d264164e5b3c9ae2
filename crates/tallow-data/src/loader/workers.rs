//! [`Workers`]: threads that make batches, which are handed out in order.
//!
//! A worker takes a free place, then the next job of the feed, whose number is that of the batch; it makes the batch and
//! lays it on the desk. The reader takes batches off the desk in the order of their numbers and frees their places.
//! There are as many places as batches may be in memory. Since numbers are given out in order, the batch that is waited
//! for always has a place, so nobody waits for ever but on user code; that is what the watches are for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::job::{self, Feed, Job, Made};
use super::watch::Watch;
use crate::{Error, Result, trace};

/// The reading end of the workers of an epoch. Dropping it stops them, and waits for the samples that they work on.
pub(super) struct Workers<B> {
    shared: Arc<Shared<B>>,
    threads: Vec<JoinHandle<()>>,
    /// The number of the next batch to hand out.
    wanted: u64,
    timeout: Option<Duration>,
    hung: bool,
}

struct Shared<B> {
    feed: Mutex<Numbered<B>>,
    desk: Mutex<Desk<B>>,
    /// A batch was made, the end was found, or a worker has ended: the reader waits for these.
    made: Condvar,
    /// A place became free, or there is nothing left to do: workers wait for these.
    free: Condvar,
    stop: Arc<AtomicBool>,
    watches: Vec<Watch>,
    /// Tells these batches from those of other readers.
    reader: u64,
}

struct Numbered<B> {
    feed: Option<Feed<B>>,
    next: u64,
}

struct Desk<B> {
    ready: BTreeMap<u64, Made<B>>,
    places: usize,
    /// How many batches there are, once that is known.
    end: Option<u64>,
    running: usize,
}

impl<B: Send + 'static> Workers<B> {
    /// Starts `count` workers that keep up to `places` batches in memory.
    pub(super) fn start(
        feed: Feed<B>,
        count: usize,
        places: usize,
        timeout: Option<Duration>,
        reader: u64,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        // A worker makes one batch at a time: more than there are places would never have one.
        let count = count.min(places);
        let shared = Arc::new(Shared {
            feed: Mutex::new(Numbered {
                feed: Some(feed),
                next: 0,
            }),
            desk: Mutex::new(Desk {
                ready: BTreeMap::new(),
                places,
                end: None,
                running: 0,
            }),
            made: Condvar::new(),
            free: Condvar::new(),
            reader,
            watches: (0..count).map(|_| Watch::new(stop.clone())).collect(),
            stop,
        });
        let mut workers = Self {
            shared,
            threads: Vec::new(),
            wanted: 0,
            timeout,
            hung: false,
        };
        for number in 0..count {
            workers.spawn(number)?;
        }
        Ok(workers)
    }

    fn spawn(&mut self, number: usize) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        lock(&self.shared.desk).running += 1;
        let thread = std::thread::Builder::new()
            .name("tallow-loader".into())
            .spawn(move || {
                let leave = Leave(&shared);
                shared.work(&shared.watches[number]);
                drop(leave);
            });
        let thread = thread.map_err(|error| {
            lock(&self.shared.desk).running -= 1;
            Error::custom(format!(
                "can't start worker {number} of a loader: {error}; set fewer workers"
            ))
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// The next batch in order; `None` after the last one, or after a worker hung.
    pub(super) fn next(&mut self) -> Option<Made<B>> {
        if self.hung {
            return None;
        }
        let mut patience = Patience::new(self.timeout, &self.shared.watches);
        let shared = Arc::clone(&self.shared);
        let mut desk = lock(&shared.desk);
        loop {
            if let Some(made) = desk.ready.remove(&self.wanted) {
                self.wanted += 1;
                desk.places += 1;
                let ready = desk.ready.len();
                drop(desk);
                trace::queue(ready);
                shared.free.notify_one();
                return Some(made);
            }
            if desk.end.is_some_and(|end| self.wanted >= end) {
                return None;
            }
            if desk.running == 0 {
                self.hung = true;
                let error = Error::custom("the workers of a loader have ended early");
                return Some(Made::failed(error));
            }
            desk = match patience.until_next_look() {
                None => wait(shared.made.wait(desk)),
                Some(time) => wait(shared.made.wait_timeout(desk, time)).0,
            };
            if let Some(error) = patience.lost(&shared.watches) {
                self.hung = true;
                return Some(Made::failed(error));
            }
        }
    }
}

impl<B: 'static> Shared<B> {
    fn work(&self, watch: &Watch) {
        while self.take_place() {
            let Some((number, job)) = self.take_job(watch) else {
                return;
            };
            let made = job::run(job, watch, trace::flow(self.reader, number));
            let mut desk = lock(&self.desk);
            desk.ready.insert(number, made);
            let ready = desk.ready.len();
            drop(desk);
            trace::queue(ready);
            self.made.notify_one();
        }
    }

    /// Waits for a free place; false if there is nothing left to do.
    fn take_place(&self) -> bool {
        let mut desk = lock(&self.desk);
        loop {
            if self.stop.load(Ordering::Relaxed) || desk.end.is_some() {
                return false;
            }
            if desk.places > 0 {
                desk.places -= 1;
                return true;
            }
            desk = wait(self.free.wait(desk));
        }
    }

    fn take_job(&self, watch: &Watch) -> Option<(u64, Job<B>)> {
        let mut numbered = lock(&self.feed);
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let job = job::next(&mut numbered.feed, watch);
        watch.idle();
        if let Some(job) = job {
            let number = numbered.next;
            numbered.next += 1;
            return Some((number, job));
        }
        lock(&self.desk).end = Some(numbered.next);
        self.made.notify_one();
        self.free.notify_all();
        None
    }
}

/// Counts a worker out, however it ends.
struct Leave<'a, B>(&'a Shared<B>);

impl<B> Drop for Leave<'_, B> {
    fn drop(&mut self) {
        lock(&self.0.desk).running -= 1;
        self.0.made.notify_one();
    }
}

impl<B> Drop for Workers<B> {
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut desk = lock(&shared.desk);
        shared.stop.store(true, Ordering::Relaxed);
        shared.free.notify_all();
        // A worker that hangs is left to itself: waiting for it would hang as well.
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        while desk.running > 0 && !self.hung {
            desk = match deadline.map(|end| end.saturating_duration_since(Instant::now())) {
                None => wait(shared.made.wait(desk)),
                Some(Duration::ZERO) => break,
                Some(time) => wait(shared.made.wait_timeout(desk, time)).0,
            };
        }
        let all_left = desk.running == 0;
        drop(desk);
        for thread in self.threads.drain(..) {
            if all_left || thread.is_finished() {
                // An Err would be a panic while the thread dropped what it held; there is nobody left to tell.
                let _ = thread.join();
            }
        }
    }
}

/// How long the reader has seen each worker do the same.
struct Patience {
    timeout: Option<Duration>,
    seen: Vec<(u64, Instant)>,
}

impl Patience {
    fn new(timeout: Option<Duration>, watches: &[Watch]) -> Self {
        let now = Instant::now();
        let seen = watches.iter().map(|watch| (watch.steps(), now));
        Self {
            timeout,
            seen: match timeout {
                Some(_) => seen.collect(),
                None => Vec::new(),
            },
        }
    }

    /// Often enough to be late by a tenth at most.
    fn until_next_look(&self) -> Option<Duration> {
        let tenth = self.timeout? / 10;
        Some(tenth.clamp(Duration::from_millis(1), Duration::from_secs(5)))
    }

    /// The error to give, once a worker has done the same for too long.
    fn lost(&mut self, watches: &[Watch]) -> Option<Error> {
        let timeout = self.timeout?;
        let now = Instant::now();
        for ((steps, since), watch) in self.seen.iter_mut().zip(watches) {
            if *steps != watch.steps() {
                (*steps, *since) = (watch.steps(), now);
            } else if now.duration_since(*since) >= timeout
                && let Some(doing) = watch.doing()
            {
                return Some(Error::Hung {
                    stage: doing.stage,
                    sample: doing.sample.to_string(),
                    seconds: timeout.as_secs_f64(),
                });
            }
        }
        None
    }
}

/// A worker's panic outside of user code is caught or ends that worker; what the lock guards is whole in either case.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<G>(result: std::result::Result<G, PoisonError<G>>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}
