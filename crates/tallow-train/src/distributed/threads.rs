//! [`Threads`]: ranks that are threads of one process.

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Collective, Failure, Pending};
use crate::{Error, Result};

/// How long a rank is waited for.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The main thread's usual one; the tape of a deep model needs more than a thread's.
const STACK: usize = 8 << 20;

/// Runs `program` on so many threads at once, each a rank, and gives what each of them gives, in their order.
///
/// A rank computes on threads of its own, an equal share of those that are here, so that no rank waits for work that another rank
/// keeps from being done.
///
/// # Errors
///
/// [`Error::Rank`] with the first rank that gave an error, panicked, ended while others waited for it, or gave no answer within five
/// minutes; the calls of the other ranks fail with the same error. [`Error::Setting`] for no rank at all.
pub fn run_threads<T, E>(
    ranks: usize,
    program: impl Fn(Threads) -> std::result::Result<T, E> + Sync,
) -> Result<Vec<T>>
where
    T: Send,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    run_threads_within(TIMEOUT, ranks, program)
}

/// [`run_threads`] with another time after which a rank that gives no answer has failed.
///
/// # Errors
///
/// As [`run_threads`].
pub fn run_threads_within<T, E>(
    timeout: Duration,
    ranks: usize,
    program: impl Fn(Threads) -> std::result::Result<T, E> + Sync,
) -> Result<Vec<T>>
where
    T: Send,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    Error::require(ranks > 0, "the number of ranks", "at least 1", &0)?;
    let world = Arc::new(World {
        size: ranks,
        timeout,
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let threads = (rayon::current_num_threads() / ranks).max(1);
    let run = |rank: usize| {
        let collective = Threads {
            rank,
            world: world.clone(),
            calls: Arc::default(),
        };
        let given = on_own_pool(threads, || {
            catch_unwind(AssertUnwindSafe(|| program(collective).map_err(Into::into)))
        });
        match given {
            Ok(Ok(Ok(given))) => {
                world.leave(rank);
                return Some(given);
            }
            Ok(Ok(Err(error))) => world.fail(rank, chain(&*error)),
            Ok(Err(panic)) => world.fail(rank, format!("panicked: {}", message(&*panic))),
            Err(error) => world.fail(rank, error),
        }
        None
    };
    let given: Vec<Option<T>> = thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> = (0..ranks)
            .map(|rank| scope.spawn(move || run(rank)))
            .collect();
        let joined = handles
            .into_iter()
            .map(|handle| handle.join().ok().flatten());
        joined.collect()
    });
    let failure = world.lock().failure.clone();
    match (failure, given.into_iter().collect()) {
        (None, Some(given)) => Ok(given),
        (failure, _) => Err(failure
            .unwrap_or(Failure {
                rank: 0,
                problem: "its thread could not be run".into(),
            })
            .into()),
    }
}

/// Runs `f` on a thread of a pool that nobody else has.
fn on_own_pool<T: Send>(
    threads: usize,
    f: impl FnOnce() -> T + Send,
) -> std::result::Result<T, String> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .stack_size(STACK)
        .build();
    let pool = pool.map_err(|error| format!("can't start its threads: {error}"))?;
    Ok(pool.install(f))
}

/// An error with its causes.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

/// One rank of [`run_threads`]. Clones are the same rank.
#[derive(Clone)]
pub struct Threads {
    rank: usize,
    world: Arc<World>,
    /// Calls that this rank has made; the number of a call is what makes it the same call on every rank.
    calls: Arc<AtomicU64>,
}

struct World {
    size: usize,
    timeout: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Calls that not every rank has the result of, by number.
    rounds: BTreeMap<u64, Round>,
    /// Ranks that have ended.
    left: Vec<usize>,
    failure: Option<Failure>,
}

struct Round {
    parts: Vec<Option<Values>>,
    result: Option<Arc<Values>>,
    /// Ranks that have yet to take the result.
    waiting: usize,
}

/// What a rank brings to a call.
enum Values {
    Floats(Vec<f32>),
    Doubles(Vec<f64>),
    Bytes { root: usize, bytes: Vec<u8> },
}

impl Values {
    fn describe(&self) -> String {
        match self {
            Self::Floats(values) => format!("a sum of {} f32", values.len()),
            Self::Doubles(values) => format!("a sum of {} f64", values.len()),
            Self::Bytes { root, bytes } => {
                format!("a broadcast of {} bytes from rank {root}", bytes.len())
            }
        }
    }

    /// Adds another rank's; whether it was the same call.
    fn join(&mut self, other: Self) -> bool {
        match (self, other) {
            (Self::Floats(sums), Self::Floats(values)) if sums.len() == values.len() => {
                sums.iter_mut()
                    .zip(values)
                    .for_each(|(sum, value)| *sum += value);
                true
            }
            (Self::Doubles(sums), Self::Doubles(values)) if sums.len() == values.len() => {
                sums.iter_mut()
                    .zip(values)
                    .for_each(|(sum, value)| *sum += value);
                true
            }
            _ => false,
        }
    }
}

/// What a call gives: sums in the order of the ranks, or what the root brought.
fn combine(mut parts: Vec<Values>) -> std::result::Result<Values, Failure> {
    let asked = parts[0].describe();
    let differs = parts.iter().position(|part| part.describe() != asked);
    if let Some(rank) = differs {
        let problem = format!(
            "is at {} where rank 0 is at {asked}; every rank must make the same calls in the same order",
            parts[rank].describe()
        );
        return Err(Failure { rank, problem });
    }
    if let Values::Bytes { root, .. } = parts[0] {
        return Ok(parts.swap_remove(root));
    }
    let mut parts = parts.into_iter();
    let mut sum = parts.next().unwrap_or(Values::Floats(Vec::new()));
    let _same = parts.all(|part| sum.join(part));
    Ok(sum)
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, rank: usize, problem: String) {
        self.lock().failure.get_or_insert(Failure { rank, problem });
        self.changed.notify_all();
    }

    fn leave(&self, rank: usize) {
        self.lock().left.push(rank);
        self.changed.notify_all();
    }

    /// Brings a rank's part of call `number`; the last one to come combines them.
    fn bring(&self, number: u64, rank: usize, values: Values) -> Result<()> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone().into());
        }
        let round = state.rounds.entry(number).or_insert_with(|| Round {
            parts: (0..self.size).map(|_| None).collect(),
            result: None,
            waiting: self.size,
        });
        round.parts[rank] = Some(values);
        if round.parts.iter().any(Option::is_none) {
            return Ok(());
        }
        let parts = round.parts.iter_mut().filter_map(Option::take).collect();
        drop(state);
        match combine(parts) {
            Ok(result) => {
                if let Some(round) = self.lock().rounds.get_mut(&number) {
                    round.result = Some(Arc::new(result));
                }
                self.changed.notify_all();
                Ok(())
            }
            Err(failure) => {
                self.fail(failure.rank, failure.problem.clone());
                Err(failure.into())
            }
        }
    }

    /// Waits for the result of call `number`.
    fn take(&self, number: u64, rank: usize) -> Result<Arc<Values>> {
        let deadline = Instant::now() + self.timeout;
        let mut state = self.lock();
        loop {
            let round = state.rounds.get_mut(&number);
            if let Some(round) = round
                && let Some(result) = round.result.clone()
            {
                round.waiting -= 1;
                if round.waiting == 0 {
                    state.rounds.remove(&number);
                }
                return Ok(result);
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone().into());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(failure) = self.missing(&state, number, rank, left.is_zero()) {
                drop(state);
                self.fail(failure.rank, failure.problem.clone());
                return Err(failure.into());
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A rank whose part of a call will not come: it has ended, or time is over.
    fn missing(&self, state: &State, number: u64, rank: usize, over: bool) -> Option<Failure> {
        let round = state.rounds.get(&number)?;
        let absent = |other: &usize| round.parts[*other].is_none() && *other != rank;
        if round.parts.iter().all(Option::is_none) {
            // All have come, and the last one is combining what they brought.
            return None;
        }
        if let Some(&rank) = state.left.iter().find(|other| absent(other)) {
            let problem = "has ended while other ranks wait for it".to_string();
            return Some(Failure { rank, problem });
        }
        let rank = (0..self.size).find(absent).filter(|_| over)?;
        let problem = format!("gave no answer for {:?}", self.timeout);
        Some(Failure { rank, problem })
    }
}

impl Threads {
    fn begin(&self, values: Values) -> Result<u64> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        self.world.bring(number, self.rank, values)?;
        Ok(number)
    }

    fn call(&self, values: Values) -> Result<Arc<Values>> {
        let number = self.begin(values)?;
        self.world.take(number, self.rank)
    }
}

impl Collective for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world.size
    }

    fn start_sum(&self, values: Vec<f32>) -> Result<Pending> {
        let number = self.begin(Values::Floats(values))?;
        let (world, rank) = (self.world.clone(), self.rank);
        Ok(Pending::new(move || match &*world.take(number, rank)? {
            Values::Floats(sums) => Ok(sums.clone()),
            _ => Ok(Vec::new()),
        }))
    }

    fn sum_f64(&self, values: &mut [f64]) -> Result<()> {
        if let Values::Doubles(sums) = &*self.call(Values::Doubles(values.to_vec()))? {
            values.copy_from_slice(sums);
        }
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        let what = "the rank to hear from";
        Error::require(root < self.world.size, what, "one of the world", &root)?;
        let own = bytes.to_vec();
        if let Values::Bytes { bytes: given, .. } =
            &*self.call(Values::Bytes { root, bytes: own })?
        {
            bytes.copy_from_slice(given);
        }
        Ok(())
    }

    fn abort(&self, failure: Failure) {
        self.world.fail(failure.rank, failure.problem);
    }

    fn failure(&self) -> Option<Failure> {
        self.world.lock().failure.clone()
    }
}
