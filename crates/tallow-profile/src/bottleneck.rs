//! [`Bottlenecks`]: what holds a training up, in words, with the setting to change.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::Serialize;

use crate::tree::Tree;
use crate::{Grouping, Part, Profile, Row};

/// What was found, the largest share of the wall time first; `Display` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct Bottlenecks {
    /// The findings.
    pub findings: Vec<Finding>,
    /// The steps that were recorded.
    pub steps: usize,
    /// Mean time of a step in nanoseconds, or the wall time where no steps were counted.
    pub step_time: u64,
}

/// One thing that holds the training up.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// The training waits for batches.
    WaitingForData(Waiting),
    /// An operation runs far from what the machine can do.
    SlowOperation {
        /// The share of the wall time.
        share: f64,
        /// The operation and its shapes.
        operation: String,
        /// Where it runs.
        module: String,
        /// The share of what the machine can do at best.
        reached: f64,
        /// Whether memory is the limit, and not arithmetic.
        memory_bound: bool,
    },
    /// A module runs as it is because it can't be captured.
    GraphBreak {
        /// The share of the wall time.
        share: f64,
        /// The module; empty for the whole model.
        module: String,
        /// Why, and what to write instead.
        reason: String,
        /// How often it ran.
        runs: u64,
    },
    /// Plans are compiled again and again.
    Recompiles {
        /// The share of the wall time.
        share: f64,
        /// How often, the first plan not counted.
        count: u64,
        /// The signatures that it was compiled for.
        signatures: Vec<String>,
    },
    /// The first plan was compiled within what was recorded.
    Compiling {
        /// The share of the wall time.
        share: f64,
    },
    /// Operations are so small that what surrounds them takes longer.
    SmallBatches {
        /// The share of the wall time that goes to what surrounds operations.
        share: f64,
        /// Mean time of an operation in nanoseconds.
        operation_time: u64,
        /// Samples in a batch, where that is known.
        batch: Option<u64>,
    },
    /// Hooks take long.
    Hooks {
        /// The share of the wall time.
        share: f64,
    },
}

/// Where batches come from too late.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Waiting {
    /// The share of the wall time.
    pub share: f64,
    /// The stage that takes the most of making a batch: `read and decode`, the name of a transform, `collate`. `None` where batches
    /// don't come out of a loader.
    pub stage: Option<String>,
    /// Its share of the making of batches.
    pub stage_share: f64,
    /// Mean time of making a batch, on one thread, in nanoseconds.
    pub batch_time: u64,
    /// Mean time of a step without the waiting, in nanoseconds.
    pub compute_time: u64,
    /// Worker threads.
    pub workers: u64,
    /// Batches that may be ready or in the making.
    pub prefetch: u64,
    /// How many workers keep up with the training, with a fifth to spare.
    pub workers_needed: u64,
}

/// Shares of the wall time from which on something is worth a word.
const WORTH: f64 = 0.10;
/// The same for a single operation.
const WORTH_OPERATION: f64 = 0.05;
/// An operation that reaches less of the limit is called slow.
const SLOW: f64 = 0.25;
/// Slow operations that are listed.
const LISTED: usize = 5;
/// An operation that takes less is not worth a word on its speed, and many of them are mostly their own calling; in nanoseconds.
const TINY: u64 = 100_000;

impl Finding {
    /// The share of the wall time.
    pub fn share(&self) -> f64 {
        match self {
            Self::WaitingForData(waiting) => waiting.share,
            Self::SlowOperation { share, .. }
            | Self::GraphBreak { share, .. }
            | Self::Recompiles { share, .. }
            | Self::Compiling { share }
            | Self::SmallBatches { share, .. }
            | Self::Hooks { share } => *share,
        }
    }
}

impl Profile {
    /// What holds the training up.
    pub fn bottlenecks(&self) -> Bottlenecks {
        let tree = Tree::of(self);
        let parts = self.parts();
        let share = |part: Part| {
            let found = parts.iter().find(|time| time.part == part);
            found.map_or(0.0, |time| time.share)
        };
        let mut findings = Vec::new();
        if share(Part::Data) >= WORTH {
            let waiting = self.waiting(&tree, share(Part::Data));
            findings.push(Finding::WaitingForData(waiting));
        }
        findings.extend(self.slow_operations(&tree));
        findings.extend(self.graph_breaks(&tree));
        findings.extend(self.compiling(&tree, share(Part::Compile)));
        findings.extend(self.small_batches(&tree));
        if share(Part::Hooks) >= WORTH {
            findings.push(Finding::Hooks {
                share: share(Part::Hooks),
            });
        }
        findings.sort_by(|a, b| b.share().total_cmp(&a.share()));
        let steps = self.steps.len();
        Bottlenecks {
            findings,
            steps,
            step_time: self.wall_nanoseconds() / steps.max(1) as u64,
        }
    }

    fn waiting(&self, tree: &Tree, share: f64) -> Waiting {
        let waits: Vec<_> = self
            .spans
            .iter()
            .zip(&tree.main)
            .filter(|(span, main)| **main && span.name == "data_wait")
            .map(|(span, _)| span)
            .collect();
        let setting = |name| waits.iter().filter_map(|span| span.number(name)).max();
        let made: Vec<u64> = self
            .spans
            .iter()
            .filter(|span| span.name == "batch")
            .map(|span| span.duration())
            .collect();
        let batch_time = made.iter().sum::<u64>() / made.len().max(1) as u64;
        let wall = self.wall_nanoseconds() as f64;
        let batches = waits.len().max(self.steps.len()).max(1) as f64;
        let compute_time = (wall * (1.0 - share).max(0.0) / batches) as u64;
        let stages = self.stage_rows();
        let all: u64 = stages.iter().map(|row| row.self_time).sum();
        let worst = stages.first();
        Waiting {
            share,
            stage: worst.map(|row| row.label.trim_start_matches("batch: ").to_string()),
            stage_share: worst.map_or(0.0, |row| row.self_time as f64 / all.max(1) as f64),
            batch_time,
            compute_time,
            workers: setting("workers").unwrap_or(0),
            prefetch: setting("prefetch").unwrap_or(0),
            workers_needed: (batch_time + batch_time / 5)
                .div_ceil(compute_time.max(1))
                .clamp(1, 64),
        }
    }

    fn slow_operations(&self, tree: &Tree) -> Vec<Finding> {
        let Some(machine) = &self.machine else {
            return Vec::new();
        };
        let mut groups: BTreeMap<(&str, &str, &str), Row> = BTreeMap::new();
        for (index, span) in self.spans.iter().enumerate() {
            if !tree.main[index] || !span.is_operation() {
                continue;
            }
            let key = (
                span.label(),
                span.module.as_deref().unwrap_or_default(),
                span.shape.as_deref().unwrap_or_default(),
            );
            let row = groups.entry(key).or_default();
            row.calls += 1;
            row.self_time += tree.own[index];
            row.flops += span.flops;
            row.bytes += span.bytes;
        }
        let wall = self.wall_nanoseconds().max(1) as f64;
        let slow = groups.into_iter().filter_map(|((op, module, shape), row)| {
            let share = row.self_time as f64 / wall;
            let reached = row.share_of_peak(machine)?;
            let arithmetic = machine.limit(row.flops, 0);
            (share >= WORTH_OPERATION && reached < SLOW && row.self_time / row.calls >= TINY).then(
                || Finding::SlowOperation {
                    share,
                    operation: format!("{op} {shape}").trim_end().to_string(),
                    module: module.to_string(),
                    reached,
                    memory_bound: machine.limit(0, row.bytes) > arithmetic,
                },
            )
        });
        let mut slow: Vec<Finding> = slow.collect();
        slow.sort_by(|a, b| b.share().total_cmp(&a.share()));
        slow.truncate(LISTED);
        slow
    }

    fn graph_breaks(&self, tree: &Tree) -> Vec<Finding> {
        let mut groups: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for (index, span) in self.spans.iter().enumerate() {
            if span.name == "fallback" && tree.main[index] {
                let reason = span.field("reason").unwrap_or_default();
                let module = span.module.as_deref().unwrap_or_default();
                let (time, runs) = groups.entry((module, reason)).or_default();
                *time += span.duration();
                *runs += 1;
            }
        }
        let wall = self.wall_nanoseconds().max(1) as f64;
        let found =
            groups
                .into_iter()
                .map(|((module, reason), (time, runs))| Finding::GraphBreak {
                    share: time as f64 / wall,
                    module: module.to_string(),
                    reason: reason.to_string(),
                    runs,
                });
        found.collect()
    }

    fn compiling(&self, tree: &Tree, share: f64) -> Option<Finding> {
        let spans = self.spans.iter().zip(&tree.main);
        let compiled = spans.filter(|(span, main)| **main && span.name == "compile");
        let again = compiled.filter(|(span, _)| span.number("plans") != Some(0));
        let signatures: Vec<String> = again
            .map(|(span, _)| span.field("signature").unwrap_or_default().to_string())
            .collect();
        match signatures.len() {
            0 if share >= WORTH => Some(Finding::Compiling { share }),
            0 => None,
            count => Some(Finding::Recompiles {
                share,
                count: count as u64,
                signatures,
            }),
        }
    }

    /// What surrounds operations, within the forward and backward passes.
    fn small_batches(&self, tree: &Tree) -> Option<Finding> {
        let (mut inside, mut around, mut operations) = (0, 0, 0u64);
        for (index, span) in self.spans.iter().enumerate() {
            let passes = matches!(tree.part[index], Part::Forward | Part::Backward);
            if !tree.main[index] || !passes {
                continue;
            }
            match span.is_operation() {
                true => {
                    inside += tree.own[index];
                    operations += 1;
                }
                false => around += tree.own[index],
            }
        }
        let share = around as f64 / self.wall_nanoseconds().max(1) as f64;
        let operation_time = inside / operations.max(1);
        let tiny = operations > 0 && operation_time < TINY && around > inside;
        (tiny && share >= WORTH).then(|| Finding::SmallBatches {
            share,
            operation_time,
            batch: self
                .spans
                .iter()
                .filter(|span| span.name == "data_wait")
                .find_map(|span| span.number("samples")),
        })
    }

    /// The time of each step by part, for charts.
    pub(crate) fn step_parts(&self, tree: &Tree) -> Vec<HashMap<Part, u64>> {
        let each = self
            .steps
            .iter()
            .map(|step| self.part_sums(tree, step.start, step.end));
        each.collect()
    }

    /// Rows by operation that are operations, for charts.
    pub(crate) fn top_operations(&self, count: usize) -> Vec<Row> {
        let known: std::collections::HashSet<&str> = self
            .spans
            .iter()
            .filter(|span| span.is_operation())
            .map(|span| span.label())
            .collect();
        let table = self.table(Grouping::Operation);
        let rows = table.rows.into_iter();
        rows.filter(|row| known.contains(row.label.as_str()))
            .take(count)
            .collect()
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn short_time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000_000 => format!("{:.0} µs", nanoseconds as f64 / 1e3),
        _ => format!("{:.1} ms", nanoseconds as f64 / 1e6),
    }
}

impl fmt::Display for Bottlenecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = short_time(self.step_time);
        match self.steps {
            0 => writeln!(f, "Recorded {time}.")?,
            steps => writeln!(f, "Recorded {steps} steps of {time} on average.")?,
        }
        if self.findings.is_empty() {
            return write!(f, "Nothing holds it up that a setting would change.");
        }
        for (index, finding) in self.findings.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}. {finding}", index + 1)?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = percent(self.share());
        match self {
            Self::WaitingForData(waiting) => waiting.fmt(f),
            Self::SlowOperation {
                operation,
                module,
                reached,
                memory_bound,
                ..
            } => {
                let place = if module.is_empty() {
                    String::new()
                } else {
                    format!(" in `{module}`")
                };
                let limit = if *memory_bound {
                    "its memory traffic would allow"
                } else {
                    "this machine computes at best"
                };
                write!(
                    f,
                    "{share} of the time is {operation}{place}, which reaches {} of what {limit}. \
                     Compile the model (`Trainer::compile`), which fuses it with its neighbours and chooses another layout; \
                     where it is compiled already, its shape is unfavourable: channels in multiples of 16 run best.",
                    percent(*reached)
                )
            }
            Self::GraphBreak {
                module,
                reason,
                runs,
                ..
            } => {
                let what = match module.as_str() {
                    "" => "the whole model".to_string(),
                    module => format!("`{module}`"),
                };
                write!(
                    f,
                    "Graph break: {what} ran as it is {runs} times, {share} of the time, instead of compiled. {reason}"
                )
            }
            Self::Recompiles {
                count, signatures, ..
            } => write!(
                f,
                "Compiled again {count} times, {share} of the time, for {}. Give batches of one shape: \
                 `LoaderConfig::drop_last` leaves out the partial last one.",
                signatures.join("; ")
            ),
            Self::Compiling { .. } => write!(
                f,
                "{share} of the time is compiling, once. Record after it: a `Schedule` with `skip_first` or `wait`."
            ),
            Self::SmallBatches {
                operation_time,
                batch,
                ..
            } => {
                let batch = batch.map_or(String::new(), |samples| format!(", now of {samples}"));
                write!(
                    f,
                    "Operations take {} on average, and what surrounds them {share} of the time. Raise the batch size{batch}, \
                     or compile the model (`Trainer::compile`).",
                    short_time(*operation_time)
                )
            }
            Self::Hooks { .. } => write!(
                f,
                "{share} of the time is spent in hooks. Let logs and checkpoints come less often."
            ),
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data loading takes {} of the time", percent(self.share))?;
        let Some(stage) = &self.stage else {
            return write!(
                f,
                ": the source of batches makes them on the training thread. Read through a `Loader` with workers, or end a \
                 pipe with `prefetch`."
            );
        };
        writeln!(
            f,
            ": the training computes for {} a batch, and a worker makes one in {}, {} of it in `{stage}`.",
            short_time(self.compute_time),
            short_time(self.batch_time),
            percent(self.stage_share)
        )?;
        let (now, needed) = (self.workers, self.workers_needed);
        if now == 0 || self.prefetch == 0 {
            write!(
                f,
                "   Batches are made while the training waits. Set `LoaderConfig::workers` to {needed} (now {now}), with \
                 `LoaderConfig::with_workers`."
            )?;
        } else if needed > now {
            write!(
                f,
                "   Set `LoaderConfig::workers` to {needed} (now {now}), with `LoaderConfig::with_workers`."
            )?;
        } else if self.prefetch < 2 * now {
            write!(
                f,
                "   The workers are enough on average, but some batches are late: set `LoaderConfig::prefetch` to {} \
                 (now {}).",
                2 * now,
                self.prefetch
            )?;
        } else {
            write!(
                f,
                "   The workers are enough on average; they share the cores with the training."
            )?;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if needed > cores as u64 {
            write!(
                f,
                " This machine has {cores} cores: more workers than that help only if `{stage}` waits, for a disk or a \
                 network; otherwise make it cheaper, or do it once and store what it gives."
            )?;
        }
        Ok(())
    }
}
