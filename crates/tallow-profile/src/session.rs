//! [`Session`]: what a recording collects, a buffer a thread, while it is switched on.
//!
//! One recording at a time can be on in a process, since `tracing` has one global subscriber. Which thread writes into which
//! buffer is kept thread-local; a buffer is locked by its own thread, and by others only when a window is gathered.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use crate::profile::{Counter, Span, Stage};

/// The recording that is on, if one is.
static CURRENT: RwLock<Option<Arc<Session>>> = RwLock::new(None);
/// Whether the layer records: `CURRENT` without its lock.
static RECORDING: AtomicBool = AtomicBool::new(false);
/// Tells recordings apart, so that threads notice a new one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Numbers of spans, unique in the process.
static NEXT_SPAN: AtomicU64 = AtomicU64::new(1);

/// Whether anything is recorded.
pub(crate) fn is_recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

pub(crate) fn next_span() -> u64 {
    NEXT_SPAN.fetch_add(1, Ordering::Relaxed)
}

/// The recording of one profiler.
#[derive(Debug)]
pub(crate) struct Session {
    start: Instant,
    generation: u64,
    threads: Mutex<Vec<Arc<Mutex<Buffer>>>>,
    /// Spans of the user's own are kept up to this level.
    pub(crate) level: tracing::Level,
    kept: AtomicUsize,
    most: usize,
    dropped: AtomicU64,
}

/// What one thread recorded.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) thread: usize,
    pub(crate) name: String,
    pub(crate) spans: Vec<Span>,
    pub(crate) open: Vec<Open>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) counters: Vec<Counter>,
    pub(crate) memory: Vec<MemoryEvent>,
}

/// A span that has been entered.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) data: Arc<Mutex<Span>>,
    pub(crate) id: u64,
    pub(crate) name: &'static str,
    pub(crate) start: u64,
}

/// An output begins or ends to be on the tape.
#[derive(Debug, Clone)]
pub(crate) struct MemoryEvent {
    pub(crate) time: u64,
    pub(crate) number: u64,
    /// What is held; nothing when it is freed.
    pub(crate) held: Option<(u64, Arc<str>, Arc<str>)>,
}

/// The buffer of this thread, and of which recording it is.
struct Local {
    generation: u64,
    session: Arc<Session>,
    buffer: Arc<Mutex<Buffer>>,
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
    static TEXTS: RefCell<HashSet<Arc<str>>> = RefCell::default();
}

/// Distinct texts that a thread remembers; more are kept one by one.
const TEXTS_KEPT: usize = 1 << 14;

/// The one copy of a text that this thread has.
pub(crate) fn intern(text: &str) -> Arc<str> {
    TEXTS.with_borrow_mut(|texts| match texts.get(text) {
        Some(known) => known.clone(),
        None => {
            let new: Arc<str> = Arc::from(text);
            if texts.len() < TEXTS_KEPT {
                texts.insert(new.clone());
            }
            new
        }
    })
}

impl Session {
    pub(crate) fn new(level: tracing::Level, most: usize) -> Self {
        Self {
            start: Instant::now(),
            generation: GENERATION.fetch_add(1, Ordering::Relaxed) + 1,
            threads: Mutex::default(),
            level,
            kept: AtomicUsize::new(0),
            most,
            dropped: AtomicU64::new(0),
        }
    }

    /// Nanoseconds since the profiler was made.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Claims the process for this recording; false if another one has it.
    pub(crate) fn claim(self: &Arc<Self>) -> bool {
        let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
        if current.is_some() {
            return false;
        }
        *current = Some(self.clone());
        true
    }

    /// Lets others record again.
    pub(crate) fn release(&self) {
        self.switch(false);
        let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
        if current
            .as_ref()
            .is_some_and(|current| current.generation == self.generation)
        {
            *current = None;
        }
    }

    /// Begins or ends recording. While it is off, call sites of `tracing` are disabled at their head.
    pub(crate) fn switch(&self, on: bool) {
        if RECORDING.swap(on, Ordering::Relaxed) != on {
            tracing::callsite::rebuild_interest_cache();
        }
    }

    /// Room for one more span.
    pub(crate) fn has_room(&self) -> bool {
        if self.kept.fetch_add(1, Ordering::Relaxed) < self.most {
            return true;
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
        false
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Calls `f` with the buffer of each thread, in the order of their numbers.
    pub(crate) fn each_buffer(&self, mut f: impl FnMut(&mut Buffer)) {
        for buffer in lock(&self.threads).iter() {
            f(&mut lock(buffer));
        }
    }

    fn add_thread(&self) -> Arc<Mutex<Buffer>> {
        let mut threads = lock(&self.threads);
        let thread = threads.len();
        let current = std::thread::current();
        let name = match current.name() {
            Some(name) => name.to_string(),
            None => format!("thread {thread}"),
        };
        let buffer = Arc::new(Mutex::new(Buffer {
            thread,
            name,
            spans: Vec::new(),
            open: Vec::new(),
            stages: Vec::new(),
            counters: Vec::new(),
            memory: Vec::new(),
        }));
        threads.push(buffer.clone());
        buffer
    }
}

/// Calls `f` with the recording that is on and this thread's buffer of it.
pub(crate) fn with_buffer<T>(f: impl FnOnce(&Session, &mut Buffer) -> T) -> Option<T> {
    LOCAL.with_borrow_mut(|local| {
        let newest = GENERATION.load(Ordering::Relaxed);
        if local
            .as_ref()
            .is_none_or(|local| local.generation != newest)
        {
            let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
            let session = current.clone()?;
            *local = Some(Local {
                // A profiler that couldn't claim the process has taken a number as well.
                generation: newest,
                buffer: match local.take() {
                    Some(known) if Arc::ptr_eq(&known.session, &session) => known.buffer,
                    _ => session.add_thread(),
                },
                session,
            });
        }
        let local = local.as_ref()?;
        Some(f(&local.session, &mut lock(&local.buffer)))
    })
}

/// Nothing is left half-done under these locks if a thread panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
