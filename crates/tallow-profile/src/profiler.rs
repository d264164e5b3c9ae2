//! [`Profiler`]: when recording is on, and what becomes of what was recorded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::Level;

use crate::hook::ProfilerHook;
use crate::profile::{Step, Window};
use crate::session::{self, Session, lock};
use crate::{Error, Machine, Phase, Profile, Result, Schedule, gather, layer, memory};

/// Records what runs in this process: `torch.profiler.profile`.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use tallow_profile::{Grouping, Profiler};
/// use tallow_tensor::ops;
///
/// let profiler = Profiler::start()?;
/// let x = Tensor::ones((64, 64), DType::F32, &Device::Cpu)?;
/// ops::relu(&ops::matmul(&x, &x)?)?;
/// let profile = profiler.finish();
///
/// let table = profile.table(Grouping::Operation);
/// let matmul = table.row("matmul").expect("it ran");
/// assert_eq!((matmul.calls, matmul.flops), (1, 2 * 64 * 64 * 64));
/// println!("{table}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// One profiler at a time can record in a process. Clones are handles to the same one.
#[derive(Debug, Clone)]
pub struct Profiler {
    inner: Arc<Mutex<Inner>>,
    session: Arc<Session>,
}

struct Inner {
    schedule: Schedule,
    on_ready: Option<OnReady>,
    step: u64,
    phase: Phase,
    cycle: u64,
    /// When the step that is running began.
    step_start: u64,
    window_start: u64,
    steps: Vec<Step>,
    result: Profile,
    main_thread: usize,
    sampler: Option<Sampler>,
    measures_machine: bool,
    notes: Vec<(String, u64)>,
    finished: bool,
}

type OnReady = Box<dyn FnMut(&Profile) + Send>;

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("schedule", &self.schedule)
            .field("step", &self.step)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

/// The settings of a [`Profiler`].
#[must_use]
pub struct ProfilerBuilder {
    schedule: Schedule,
    on_ready: Option<OnReady>,
    level: Level,
    most_spans: usize,
    machine: bool,
}

impl std::fmt::Debug for ProfilerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfilerBuilder")
            .field("schedule", &self.schedule)
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

impl ProfilerBuilder {
    /// Which steps are recorded; all of them by default.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Called with what each cycle of the schedule recorded (`on_trace_ready`), on the thread that steps.
    pub fn on_ready(mut self, on_ready: impl FnMut(&Profile) + Send + 'static) -> Self {
        self.on_ready = Some(Box::new(on_ready));
        self
    }

    /// The level up to which `tracing` spans of the program's own are recorded; `INFO` by default. Tallow's own always
    /// are.
    pub fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// How many spans are kept at most; two million by default, some 400 MB. What is left out is
    /// [counted](Profile::dropped).
    pub fn most_spans(mut self, spans: usize) -> Self {
        self.most_spans = spans;
        self
    }

    /// Whether the speed of this machine is measured when the profiler finishes, once a process, for a fifth of a second: tables
    /// show shares of it, and the bottleneck report compares with it. Yes by default.
    pub fn measure_machine(mut self, yes: bool) -> Self {
        self.machine = yes;
        self
    }

    /// Begins step 0.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::OtherSubscriber`], [`Error::Setting`] for a schedule without recorded steps.
    pub fn start(self) -> Result<Profiler> {
        self.schedule.check()?;
        layer::install()?;
        let session = Arc::new(Session::new(self.level, self.most_spans));
        if !session.claim() {
            return Err(Error::Busy);
        }
        let main_thread = session::with_buffer(|_, buffer| buffer.thread).unwrap_or(0);
        let profiler = Profiler {
            inner: Arc::new(Mutex::new(Inner {
                schedule: self.schedule,
                on_ready: self.on_ready,
                step: 0,
                phase: Phase::Off,
                cycle: 0,
                step_start: 0,
                window_start: 0,
                steps: Vec::new(),
                result: Profile::default(),
                main_thread,
                sampler: None,
                measures_machine: self.machine,
                notes: Vec::new(),
                finished: false,
            })),
            session,
        };
        lock(&profiler.inner).enter(&profiler.session, 0);
        Ok(profiler)
    }
}

impl Profiler {
    /// Records everything from now on.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::OtherSubscriber`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// The settings of a profiler.
    pub fn builder() -> ProfilerBuilder {
        ProfilerBuilder {
            schedule: Schedule::ALWAYS,
            on_ready: None,
            level: Level::INFO,
            most_spans: 2_000_000,
            machine: true,
        }
    }

    /// Ends a step and begins the next one; to be called by loops of one's own, after each step, on one thread.
    pub fn step(&self) {
        lock(&self.inner).step(&self.session);
    }

    /// A hook that steps with a trainer, and notes what parameters and optimizer hold.
    pub fn hook(&self) -> ProfilerHook {
        ProfilerHook::new(self.clone())
    }

    /// What a thing of the program's own holds in memory, for the list of holders; a later note of the same name replaces an
    /// earlier one.
    pub fn note_memory(&self, what: &str, bytes: u64) {
        let mut inner = lock(&self.inner);
        inner.notes.retain(|(known, _)| known != what);
        inner.notes.push((what.to_string(), bytes));
    }

    /// Ends recording and gives what all cycles recorded; a cycle that was under way counts as far as it came. Further calls, also of
    /// clones, give the same.
    pub fn finish(&self) -> Profile {
        let mut inner = lock(&self.inner);
        if !inner.finished {
            inner.leave(&self.session);
            self.session.release();
            inner.finished = true;
            inner.result.dropped = self.session.dropped();
            if inner.measures_machine {
                inner.result.machine = Some(Machine::measured());
            }
        }
        inner.result.clone()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A profiler that was never finished lets others record; its sampler stops with it.
        self.sampler = None;
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        if Arc::strong_count(&self.inner) == 1 {
            self.session.release();
        }
    }
}

impl Inner {
    fn step(&mut self, session: &Session) {
        if self.finished {
            return;
        }
        let now = session.now();
        if self.phase == Phase::Active {
            self.steps.push(Step {
                number: self.step,
                start: self.step_start,
                end: now,
            });
        }
        self.step += 1;
        let (before, cycle) = (self.phase, self.cycle);
        let next = self.schedule.place(self.step);
        let ends = next.is_none_or(|(next, phase)| phase != Phase::Active || next != cycle);
        if before == Phase::Active && ends {
            self.close(session);
        }
        self.enter(session, self.step);
    }

    /// Does what the schedule says for a step.
    fn enter(&mut self, session: &Session, step: u64) {
        let (cycle, phase) = self
            .schedule
            .place(step)
            .unwrap_or((self.cycle, Phase::Off));
        let begins = phase == Phase::Active && (self.phase != Phase::Active || cycle != self.cycle);
        if phase != self.phase {
            session.switch(phase != Phase::Off);
        }
        if begins {
            let now = session.now();
            gather::discard(session, now);
            self.window_start = now;
            self.sampler = Sampler::start(session.now());
        }
        (self.phase, self.cycle) = (phase, cycle);
        self.step_start = session.now();
    }

    /// Gathers a cycle that ends.
    fn close(&mut self, session: &Session) {
        let end = session.now();
        let window = Window {
            start: self.window_start,
            end,
        };
        let process = self.sampler.take().map(Sampler::stop).unwrap_or_default();
        let mut profile = gather::gather(session, window, self.main_thread, &self.notes);
        profile.memory.process = process;
        profile.steps = std::mem::take(&mut self.steps);
        if self.step == 0 {
            profile.steps = trainer_steps(&profile);
        }
        if let Some(on_ready) = &mut self.on_ready {
            on_ready(&profile);
        }
        self.result.join(profile);
    }

    fn leave(&mut self, session: &Session) {
        if self.phase == Phase::Active {
            self.close(session);
        }
        self.phase = Phase::Off;
        session.switch(false);
    }
}

/// The steps of a trainer, where nobody counts them: from the data of each to its end.
fn trainer_steps(profile: &Profile) -> Vec<Step> {
    let (mut steps, mut data) = (Vec::new(), None);
    let spans = profile.spans.iter();
    for span in spans.filter(|span| span.thread == profile.main_thread) {
        match span.name {
            "data" => data = Some(span.start),
            "step" => steps.push(Step {
                number: span.number("step").unwrap_or(steps.len() as u64),
                start: data.take().unwrap_or(span.start),
                end: span.end,
            }),
            _ => {}
        }
    }
    steps
}

/// Resident memory, looked at every now and then by a thread of its own.
struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<(u64, u64)>>>,
}

/// How often memory is looked at.
const EVERY: Duration = Duration::from_millis(50);
/// Samples that are kept; after that, every other one goes and the pace halves.
const SAMPLES: usize = 4000;

impl Sampler {
    /// `None` where the system doesn't tell, or gives no thread.
    fn start(now: u64) -> Option<Self> {
        let first = memory::resident()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let begin = std::time::Instant::now();
        let thread = std::thread::Builder::new().name("tallow-profile".into());
        let thread = thread.spawn(move || {
            let (mut samples, mut every) = (vec![(now, first)], EVERY);
            while !stopped.load(Ordering::Relaxed) {
                std::thread::park_timeout(every);
                let time = now + begin.elapsed().as_nanos() as u64;
                samples.extend(memory::resident().map(|bytes| (time, bytes)));
                if samples.len() >= SAMPLES {
                    let mut index = 0;
                    samples.retain(|_| {
                        index += 1;
                        index % 2 == 1
                    });
                    every *= 2;
                }
            }
            samples
        });
        Some(Self {
            stop,
            thread: Some(thread.ok()?),
        })
    }

    fn stop(mut self) -> Vec<(u64, u64)> {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<Vec<(u64, u64)>> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        thread.join().ok()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}
