//! [`Profile`]: what was recorded, as plain data. Reports are made of it by the files beside this one.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::Machine;

/// What ran during the recorded steps. Times are nanoseconds since the profiler was made.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Profile {
    /// The stretches that were recorded, one a cycle of the schedule.
    pub windows: Vec<Window>,
    /// The steps that were recorded, in order.
    pub steps: Vec<Step>,
    /// Every span, ordered by its beginning.
    pub spans: Vec<Span>,
    /// What is too small for a span, added up.
    pub stages: Vec<Stage>,
    /// Numbers over time, such as the batches that lie ready.
    pub counters: Vec<Counter>,
    /// Memory over time.
    pub memory: Memory,
    /// The threads by their number.
    pub threads: Vec<String>,
    /// The thread whose time is accounted for: the one that made the profiler.
    pub main_thread: usize,
    /// What this machine can do, where it was measured.
    pub machine: Option<Machine>,
    /// Spans that weren't kept because there were too many.
    pub dropped: u64,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Its beginning.
    pub start: u64,
    /// Its end.
    pub end: u64,
}

/// One recorded step: from the end of the step before it to its own end, the wait for its data included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its number, counted from 0 since the profiler was made.
    pub number: u64,
    /// Its beginning.
    pub start: u64,
    /// Its end.
    pub end: u64,
}

/// One thing that ran, on one thread.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Span {
    /// Its number; a span that was left and entered again is listed once for each time, with the same number.
    pub id: u64,
    /// The span that it belongs to, which may be on another thread.
    pub parent: Option<u64>,
    /// What it is: `op`, `kernel`, `module`, `step`, `data_wait`, ..., or a name of the user's own.
    pub name: &'static str,
    /// The operation, for `op`, `op_backward`, `kernel` and `update`.
    pub op: Option<Arc<str>>,
    /// The path of the module.
    pub module: Option<Arc<str>>,
    /// What was read and given: `[8, 3, 32, 32], [16, 3, 3, 3] -> [8, 16, 32, 32]`.
    pub shape: Option<Arc<str>>,
    /// Floating-point operations, a multiply-add counted as two.
    pub flops: u64,
    /// Bytes that are read and written, once each.
    pub bytes: u64,
    /// Number of the thread that it ran on.
    pub thread: usize,
    /// Number of the thread that opened it: another one where work was handed over.
    pub opened_by: usize,
    /// Its beginning.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// What connects it with a span on another thread: the making of a batch with its use.
    pub flow: Option<u64>,
    /// Its other fields.
    pub fields: Vec<(&'static str, String)>,
}

impl Span {
    /// How long it took, in nanoseconds.
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// The operation, or the name of the span where it is none.
    pub fn label(&self) -> &str {
        self.op.as_deref().unwrap_or(self.name)
    }

    /// Whether it is an operation, eager or compiled, or the gradient or update of one.
    pub fn is_operation(&self) -> bool {
        matches!(self.name, "op" | "op_backward" | "kernel" | "update")
    }

    /// A field by name.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.as_str())
    }

    /// A field by name, as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }
}

/// The time that one stage of making a batch took, over all its samples.
#[derive(Debug, Clone)]
pub struct Stage {
    /// The `batch` span that it belongs to.
    pub span: Option<u64>,
    /// The stage: `read and decode`, the name of a transform, `collate`.
    pub name: Arc<str>,
    /// Its time in nanoseconds.
    pub time: u64,
    /// How often it ran.
    pub count: u64,
}

/// A number at a time.
#[derive(Debug, Clone)]
pub struct Counter {
    /// What is counted.
    pub name: Arc<str>,
    /// When.
    pub time: u64,
    /// How many.
    pub value: u64,
}

/// Memory over time, in bytes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Memory {
    /// Resident memory of the process, sampled, where the system tells it.
    pub process: Vec<(u64, u64)>,
    /// Outputs that candle's tape keeps for the backward pass.
    pub tape: Vec<(u64, u64)>,
    /// Memory of the values in compiled plans that ran so far.
    pub arena: Vec<(u64, u64)>,
    /// What holds memory at the moment at which tape and plans hold the most, largest first.
    pub holders: Vec<Holder>,
    /// That moment.
    pub peak_at: u64,
}

/// What holds memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// `conv2d`, `parameters`, ...
    pub what: String,
    /// The path of the module; empty where there is none.
    pub module: String,
    /// How much.
    pub bytes: u64,
}

impl Memory {
    /// The most resident memory that was seen.
    pub fn process_peak(&self) -> Option<u64> {
        self.process.iter().map(|&(_, bytes)| bytes).max()
    }
}

impl Profile {
    /// The time that was recorded.
    pub fn wall(&self) -> Duration {
        Duration::from_nanos(self.wall_nanoseconds())
    }

    pub(crate) fn wall_nanoseconds(&self) -> u64 {
        let each = |window: &Window| window.end.saturating_sub(window.start);
        self.windows.iter().map(each).sum()
    }

    /// Floating-point operations of all recorded operations.
    pub fn flops(&self) -> u64 {
        let flops = self.spans.iter().map(|span| span.flops);
        flops.fold(0, u64::saturating_add)
    }

    /// Adds what a later cycle recorded.
    pub(crate) fn join(&mut self, later: Self) {
        self.windows.extend(later.windows);
        self.steps.extend(later.steps);
        self.spans.extend(later.spans);
        self.stages.extend(later.stages);
        self.counters.extend(later.counters);
        self.threads = later.threads;
        self.main_thread = later.main_thread;
        self.dropped += later.dropped;
        let of = |memory: &Memory| memory.holders.iter().map(|held| held.bytes).sum::<u64>();
        if of(&later.memory) > of(&self.memory) {
            self.memory.holders = later.memory.holders;
            self.memory.peak_at = later.memory.peak_at;
        }
        self.memory.process.extend(later.memory.process);
        self.memory.tape.extend(later.memory.tape);
        self.memory.arena.extend(later.memory.arena);
        self.machine = later.machine.or(self.machine);
    }
}
