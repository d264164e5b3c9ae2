//! [`Mpi`]: ranks that are processes, started by `mpirun` and joined by the machine's MPI library.
//!
//! One thread of each process talks to MPI; calls reach it through a channel, in order. So any thread may call, sums go on while the
//! caller computes, and a rank that no longer answers can be given up. While it waits, the thread listens for what other ranks say
//! outside of the calls: that they have failed, that they have ended, and that they are waiting too.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::request::{Request, Scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{
    Communicator, CommunicatorCollectives, Destination, MatchedReceiveVec, Root, Source,
};

use super::{Collective, Failure, Pending};
use crate::{Error, Result};

/// How long a rank is waited for.
const TIMEOUT: Duration = Duration::from_secs(300);
/// After that long a rank tells the others that it is waiting, so that all know who isn't.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an ended rank's last messages may be on their way.
const GRACE: Duration = Duration::from_secs(5);

/// What is said outside of calls: the rank has failed, has ended, or is waiting in the call of a number.
const FAILED: i32 = 71;
const LEFT: i32 = 72;
const WAITING: i32 = 73;

/// A rank of the world that `mpirun -n N` started.
///
/// To be made once a process, before the training, and dropped after it, which waits for the other ranks. A process that is killed,
/// or ends with an error, is noticed by `mpirun`, which names it and ends the others; one that hangs is named by the ranks that wait
/// for it, after five minutes or the time of [`with_timeout`](Self::with_timeout).
/// Ctrl-C is `mpirun`'s: it ends all processes, and the last checkpoint stays.
///
/// ```no_run
/// use tallow_train::distributed::{Collective, Mpi};
///
/// # fn main() -> tallow_train::Result<()> {
/// let ranks = Mpi::new()?;
/// println!("rank {} of {}", ranks.rank(), ranks.world_size());
/// # Ok(())
/// # }
/// ```
pub struct Mpi {
    rank: usize,
    size: usize,
    shared: Arc<Shared>,
    /// None only while it is dropped.
    calls: Option<Sender<Call>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread that talks to MPI and the others both see.
#[derive(Default)]
struct Shared {
    failure: Mutex<Option<Failure>>,
    /// Why this rank wants the run to end.
    wanted: Mutex<Option<Failure>>,
}

type Reply<T> = Sender<std::result::Result<T, Failure>>;

enum Call {
    Floats(Vec<f32>, Reply<Vec<f32>>),
    Doubles(Vec<f64>, Reply<Vec<f64>>),
    Bytes(usize, Vec<u8>, Reply<Vec<u8>>),
    /// There is something to be seen in [`Shared`].
    Look,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mpi {
    /// Joins the world. Without `mpirun` it is a world of one.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the process has joined before.
    pub fn new() -> Result<Self> {
        Self::with_timeout(TIMEOUT)
    }

    /// Joins the world, and gives up a rank that is waited for this long.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_timeout(timeout: Duration) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (calls, received) = mpsc::channel();
        let (ready, begun) = mpsc::channel();
        let of_thread = shared.clone();
        let serve = move || serve(timeout, received, of_thread, &ready);
        let thread = thread::Builder::new().name("mpi".into()).spawn(serve);
        let thread = thread.map_err(|error| unable(&error.to_string()))?;
        match begun.recv() {
            Ok(Some((rank, size))) => Ok(Self {
                rank,
                size,
                shared,
                calls: Some(calls),
                thread: Some(thread),
            }),
            _ => Err(unable("MPI refused to start a second time")),
        }
    }

    /// Whether this process was started by `mpirun` (or by another launcher of MPI programs).
    pub fn is_launched() -> bool {
        ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"]
            .iter()
            .any(|name| std::env::var_os(name).is_some())
    }

    fn call<T>(&self, call: impl FnOnce(Reply<T>) -> Call) -> Answer<T> {
        let (reply, answer) = mpsc::channel();
        if let Some(calls) = &self.calls {
            // If the thread has ended, so has the other end of the reply.
            let _ended = calls.send(call(reply));
        }
        Answer {
            answer,
            rank: self.rank,
        }
    }
}

/// The answer to a call, once there is one.
struct Answer<T> {
    answer: Receiver<std::result::Result<T, Failure>>,
    rank: usize,
}

impl<T> Answer<T> {
    fn wait(self) -> Result<T> {
        match self.answer.recv() {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Error::Rank {
                rank: self.rank,
                problem: "its connection to MPI has ended".into(),
            }),
        }
    }
}

fn unable(problem: &str) -> Error {
    Error::Setting {
        what: "a rank of MPI",
        expected: "made once a process".into(),
        found: problem.into(),
    }
}

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.size
    }

    fn start_sum(&self, values: Vec<f32>) -> Result<Pending> {
        let answer = self.call(|reply| Call::Floats(values, reply));
        Ok(Pending::new(move || answer.wait()))
    }

    fn sum_f64(&self, values: &mut [f64]) -> Result<()> {
        let own = values.to_vec();
        let sums = self.call(|reply| Call::Doubles(own, reply)).wait()?;
        values.copy_from_slice(&sums);
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        let what = "the rank to hear from";
        Error::require(root < self.size, what, "one of the world", &root)?;
        let own = bytes.to_vec();
        let given = self.call(|reply| Call::Bytes(root, own, reply)).wait()?;
        bytes.copy_from_slice(&given);
        Ok(())
    }

    fn abort(&self, failure: Failure) {
        if self.failure().is_some() {
            return;
        }
        *lock(&self.shared.wanted) = Some(failure);
        if let Some(calls) = &self.calls {
            let _ended = calls.send(Call::Look);
        }
        // Until the others have been told.
        let deadline = Instant::now() + GRACE;
        while self.failure().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn failure(&self) -> Option<Failure> {
        lock(&self.shared.failure).clone()
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if thread::panicking() && self.failure().is_none() {
            self.abort(Failure {
                rank: self.rank,
                problem: "panicked".into(),
            });
        }
        self.calls = None;
        // After a failure, calls of MPI may never end; the end of the process ends them.
        if self.failure().is_none()
            && let Some(thread) = self.thread.take()
        {
            let _panicked = thread.join();
        }
    }
}

/// Joins the world, answers calls until there will be no more, and leaves it.
fn serve(
    timeout: Duration,
    calls: Receiver<Call>,
    shared: Arc<Shared>,
    ready: &Sender<Option<(usize, usize)>>,
) {
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
        let _gone = ready.send(None);
        return;
    };
    let world = universe.world();
    let mut link = Link {
        rank: world.rank() as usize,
        size: world.size() as usize,
        world,
        timeout,
        calls,
        shared,
        number: 0,
    };
    let _gone = ready.send(Some((link.rank, link.size)));
    while let Ok(call) = link.calls.recv() {
        link.answer(call);
    }
    link.tell_all(LEFT, &[]);
}

/// The thread's end of the line to the other ranks.
struct Link {
    world: SimpleCommunicator,
    rank: usize,
    size: usize,
    timeout: Duration,
    calls: Receiver<Call>,
    shared: Arc<Shared>,
    /// Calls so far.
    number: u64,
}

/// What is known while a call is waited for.
struct Watch {
    begun: Instant,
    /// Ranks that wait in the same call.
    waiting: Vec<bool>,
    said: bool,
    /// A rank that has ended, and until when it is believed that its part of the call is still on its way.
    left: Option<(usize, Instant)>,
}

impl Link {
    fn answer(&mut self, call: Call) {
        self.number += 1;
        match call {
            Call::Look => {
                self.number -= 1;
                if let Some(failure) = self.own_failure() {
                    self.serve_failure(&failure);
                }
            }
            Call::Floats(values, reply) => {
                let mut sums = vec![0f32; values.len()];
                mpi::request::scope(|scope| {
                    let sum = SystemOperation::sum();
                    let (from, to) = (&values[..], &mut sums[..]);
                    let request = self.world.immediate_all_reduce_into(scope, from, to, sum);
                    self.complete(request, &reply);
                });
                let _unwanted = reply.send(Ok(sums));
            }
            Call::Doubles(values, reply) => {
                let mut sums = vec![0f64; values.len()];
                mpi::request::scope(|scope| {
                    let sum = SystemOperation::sum();
                    let (from, to) = (&values[..], &mut sums[..]);
                    let request = self.world.immediate_all_reduce_into(scope, from, to, sum);
                    self.complete(request, &reply);
                });
                let _unwanted = reply.send(Ok(sums));
            }
            Call::Bytes(root, mut bytes, reply) => {
                mpi::request::scope(|scope| {
                    let root = self.world.process_at_rank(root as i32);
                    let request = root.immediate_broadcast_into(scope, &mut bytes[..]);
                    self.complete(request, &reply);
                });
                let _unwanted = reply.send(Ok(bytes));
            }
        }
    }

    /// Waits for a request of MPI. On a failure the request can neither end nor be taken back: its memory must stay, and so does this
    /// thread, to say of all later calls that they failed.
    fn complete<'a, D: ?Sized, S: Scope<'a>, T>(
        &self,
        mut request: Request<'a, D, S>,
        reply: &Reply<T>,
    ) {
        let mut watch = Watch {
            begun: Instant::now(),
            waiting: vec![false; self.size],
            said: false,
            left: None,
        };
        for turn in 0u64.. {
            request = match request.test() {
                Ok(_) => return,
                Err(request) => request,
            };
            if turn % 64 == 63
                && let Some(failure) = self.look(&mut watch)
            {
                *lock(&self.shared.failure) = Some(failure.clone());
                let _unwanted = reply.send(Err(failure.clone()));
                self.serve_failure(&failure);
            }
            if turn < 256 {
                thread::yield_now();
            } else {
                thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Whether the call that is waited for can still end well.
    fn look(&self, watch: &mut Watch) -> Option<Failure> {
        if let Some(failure) = self.own_failure() {
            return Some(failure);
        }
        let anyone = self.world.any_process();
        if let Some(message) = anyone.immediate_matched_probe_with_tag(FAILED) {
            let (bytes, status) = message.matched_receive_vec::<u8>();
            let (rank, problem) = match bytes.split_first_chunk() {
                Some((rank, problem)) => (u32::from_le_bytes(*rank) as usize, problem),
                None => (status.source_rank() as usize, &bytes[..]),
            };
            return Some(Failure {
                rank,
                problem: String::from_utf8_lossy(problem).into_owned(),
            });
        }
        if let Some(message) = anyone.immediate_matched_probe_with_tag(LEFT) {
            let (_, status) = message.matched_receive_vec::<u8>();
            let rank = status.source_rank() as usize;
            watch.left.get_or_insert((rank, Instant::now() + GRACE));
        }
        if let Some((rank, until)) = watch.left
            && Instant::now() > until
        {
            let problem = "has ended while other ranks wait for it".to_string();
            return Some(Failure { rank, problem });
        }
        let waited = watch.begun.elapsed();
        if waited < PATIENCE {
            return None;
        }
        if !watch.said {
            watch.said = true;
            self.tell_all(WAITING, &self.number.to_le_bytes());
        }
        while let Some(message) = anyone.immediate_matched_probe_with_tag(WAITING) {
            let (number, status) = message.matched_receive_vec::<u8>();
            if number == self.number.to_le_bytes() {
                watch.waiting[status.source_rank() as usize] = true;
            }
        }
        if waited < self.timeout {
            return None;
        }
        let others = (0..self.size).filter(|other| *other != self.rank);
        let rank = others.clone().find(|other| !watch.waiting[*other]);
        let problem = format!("gave no answer for {:?}", self.timeout);
        Some(Failure {
            rank: rank.or(others.clone().next()).unwrap_or(self.rank),
            problem,
        })
    }

    /// If this rank wants the run to end, tells the others.
    fn own_failure(&self) -> Option<Failure> {
        let failure = lock(&self.shared.wanted).take()?;
        let mut bytes = (failure.rank as u32).to_le_bytes().to_vec();
        bytes.extend(failure.problem.bytes().take(2000));
        self.tell_all(FAILED, &bytes);
        *lock(&self.shared.failure) = Some(failure.clone());
        Some(failure)
    }

    /// Messages this short are sent at once, whether or not somebody listens.
    fn tell_all(&self, tag: i32, bytes: &[u8]) {
        for other in (0..self.size).filter(|other| *other != self.rank) {
            mpi::request::scope(|scope| {
                let other = self.world.process_at_rank(other as i32);
                let _status = other.immediate_send_with_tag(scope, bytes, tag).wait();
            });
        }
    }

    /// Lets every call fail, until the process ends.
    fn serve_failure(&self, failure: &Failure) -> ! {
        while let Ok(call) = self.calls.recv() {
            match call {
                Call::Floats(_, reply) => drop(reply.send(Err(failure.clone()))),
                Call::Doubles(_, reply) => drop(reply.send(Err(failure.clone()))),
                Call::Bytes(_, _, reply) => drop(reply.send(Err(failure.clone()))),
                Call::Look => {}
            }
        }
        loop {
            thread::park();
        }
    }
}
