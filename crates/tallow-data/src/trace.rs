//! What a profiler sees of the making of batches: spans of target `tallow` for batches, and for what is too small for a span of
//! its own (reading or changing one sample) sums a batch, as events of target `tallow::stage`.
//!
//! | span | fields | is |
//! |---|---|---|
//! | `data_wait` | `batch`, `flow`, `workers`, `prefetch`, `samples` | the reader waits for a batch |
//! | `batch` | `flow`, `samples` | a batch is made; `flow` is that of the `data_wait` that gets it |
//! | `items` | - | the source is asked what belongs to the next batch |
//!
//! Events of target `tallow::counter` tell how many batches lie ready.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tracing::{Level, trace};

/// Whether anybody records.
#[inline]
fn is_on() -> bool {
    tracing::enabled!(target: "tallow::stage", Level::TRACE)
}

/// A number for a reader of an epoch, unique in this process; batches of it are told apart by their own numbers.
pub(crate) fn reader() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What connects a batch's making with its use.
pub(crate) fn flow(reader: u64, batch: u64) -> u64 {
    (reader << 32) | (batch & 0xffff_ffff)
}

/// The stages of the batch that this thread makes.
#[derive(Default)]
struct Stages {
    sums: Vec<Sum>,
    /// Time of stages that ended within the one that is running.
    inner: u64,
}

struct Sum {
    name: &'static str,
    nanoseconds: u64,
    count: u64,
}

thread_local! {
    static STAGES: RefCell<Stages> = const { RefCell::new(Stages { sums: Vec::new(), inner: 0 }) };
}

/// Runs a stage of a sample's making; its time, without that of stages within it, is added up by `name`.
#[inline]
pub(crate) fn stage<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    if is_on() { timed(name, run) } else { run() }
}

/// As [`stage`], named after a type.
#[inline]
pub(crate) fn stage_of<N, T>(run: impl FnOnce() -> T) -> T {
    stage(std::any::type_name::<N>(), run)
}

fn timed<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    let outer = STAGES.with_borrow_mut(|stages| std::mem::take(&mut stages.inner));
    let start = Instant::now();
    let result = run();
    let time = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    STAGES.with_borrow_mut(|stages| {
        let own = time.saturating_sub(stages.inner);
        stages.inner = outer + time;
        match stages.sums.iter_mut().find(|sum| sum.name == name) {
            Some(sum) => {
                sum.nanoseconds += own;
                sum.count += 1;
            }
            None => stages.sums.push(Sum {
                name,
                nanoseconds: own,
                count: 1,
            }),
        }
    });
    result
}

/// Tells the sums of a batch and begins anew. To be called inside the batch's span.
pub(crate) fn tell_stages() {
    if !is_on() {
        return;
    }
    let stages = STAGES.take();
    for sum in stages.sums {
        trace!(
            target: "tallow::stage",
            stage = short(sum.name).as_str(),
            nanoseconds = sum.nanoseconds,
            count = sum.count,
        );
    }
}

/// Tells how many batches lie ready.
pub(crate) fn queue(depth: usize) {
    trace!(target: "tallow::counter", counter = "batches ready", value = depth);
}

/// `tallow_data::transform::RandomCrop` as `RandomCrop`; a function of the user's own with the place that it was written in.
fn short(name: &str) -> String {
    let (path, parameters) = name.split_once('<').unwrap_or((name, ""));
    let last = path.rsplit("::").next().unwrap_or(path);
    match parameters.split_once("::{{closure}}") {
        Some((place, _)) => format!("{last} in {place}"),
        None => last.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn names_are_short_and_closures_keep_their_place() {
        assert_eq!(
            short("tallow_data::transform::random_crop::RandomCrop"),
            "RandomCrop"
        );
        assert_eq!(short("load"), "load");
        assert_eq!(
            short("tallow_data::transform::lambda::Lambda<ch09::starved::{{closure}}>"),
            "Lambda in ch09::starved"
        );
    }
}
