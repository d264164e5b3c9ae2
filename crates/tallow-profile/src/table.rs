//! [`Table`]: where the time goes, by operation, module or shape.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::tree::Tree;
use crate::{Machine, Profile};

/// What the rows of a [`Table`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grouping {
    /// Operations and other spans by name: `conv2d`, `data_wait`.
    Operation,
    /// Modules by path: `layer1.0.conv1`. What runs outside of modules is left to rows in parentheses.
    Module,
    /// Operations by name and shapes.
    Shape,
}

/// Time by operation, module or shape; `Display` prints it (`key_averages().table()`).
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// What rows are.
    pub grouping: Grouping,
    /// The main thread's time, and that of plans which ran for it: the largest self time first. The last row is what lies
    /// outside of spans; self times add up to the wall time.
    pub rows: Vec<Row>,
    /// What other threads did at the same time, such as loader workers.
    pub background: Vec<Row>,
    /// The time that was recorded.
    pub wall: Duration,
    /// What shares of the peak refer to.
    pub machine: Option<Machine>,
}

/// One row of a [`Table`].
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Row {
    /// The operation, module, or operation and shapes.
    pub label: String,
    /// How often it ran.
    pub calls: u64,
    /// Its own time, in nanoseconds.
    pub self_time: u64,
    /// Its time with what runs within it, in nanoseconds.
    pub total_time: u64,
    /// Floating-point operations of all calls, a multiply-add counted as two, as the definition of the operation has them: an
    /// algorithm that needs fewer, such as Winograd's, can be faster than the machine's peak.
    pub flops: u64,
    /// Bytes read and written by all calls, once each.
    pub bytes: u64,
}

impl Row {
    /// Operations a second, in billions; 0 for what computes nothing.
    pub fn gflops(&self) -> f64 {
        // Operations a nanosecond.
        self.flops as f64 / self.self_time.max(1) as f64
    }

    /// How near the machine's limit it runs, by operations or by memory, whichever is nearer; `None` where nothing was
    /// measured or counted.
    pub fn share_of_peak(&self, machine: &Machine) -> Option<f64> {
        let limit = machine.limit(self.flops, self.bytes);
        (limit > 0.0 && self.self_time > 0).then(|| limit / (self.self_time as f64 * 1e-9))
    }
}

impl Table {
    /// A row by its label; one of the main thread if both have one.
    pub fn row(&self, label: &str) -> Option<&Row> {
        let mut rows = self.rows.iter().chain(&self.background);
        rows.find(|row| row.label == label)
    }
}

/// The row of what lies outside of spans.
pub(crate) const OUTSIDE: &str = "(outside of spans)";

impl Profile {
    /// Where the time went.
    pub fn table(&self, grouping: Grouping) -> Table {
        let tree = Tree::of(self);
        let mut rows = self.rows(&tree, grouping, true);
        let outside = self.wall_nanoseconds().saturating_sub(tree.accounted());
        if outside > 0 {
            rows.push(Row {
                label: OUTSIDE.into(),
                self_time: outside,
                total_time: outside,
                ..Row::default()
            });
        }
        let mut background = self.rows(&tree, grouping, false);
        if grouping == Grouping::Operation {
            background.extend(self.stage_rows());
        }
        Table {
            grouping,
            rows,
            background,
            wall: self.wall(),
            machine: self.machine,
        }
    }

    fn rows(&self, tree: &Tree, grouping: Grouping, main: bool) -> Vec<Row> {
        let mut rows: HashMap<String, Row> = HashMap::new();
        let labels: Vec<String> = (0..self.spans.len())
            .map(|index| self.label(tree, index, grouping))
            .collect();
        let mut seen = HashSet::new();
        for (index, span) in self.spans.iter().enumerate() {
            if tree.main[index] != main {
                continue;
            }
            let label = &labels[index];
            let nested = tree
                .ancestors(index)
                .skip(1)
                .any(|outer| labels[outer] == *label);
            let row = rows.entry(label.clone()).or_insert_with(|| Row {
                label: label.clone(),
                ..Row::default()
            });
            row.self_time += tree.own[index];
            row.flops = row.flops.saturating_add(span.flops);
            row.bytes = row.bytes.saturating_add(span.bytes);
            if !nested {
                row.total_time += span.duration();
            }
            // A span that was left and entered again is one call.
            let counts = grouping != Grouping::Module || span.name == "module" || !nested;
            if counts && seen.insert(span.id) {
                row.calls += 1;
            }
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        rows.sort_by(|a, b| {
            let order = b.self_time.cmp(&a.self_time);
            order.then_with(|| a.label.cmp(&b.label))
        });
        rows
    }

    fn label(&self, tree: &Tree, index: usize, grouping: Grouping) -> String {
        let span = &self.spans[index];
        match grouping {
            Grouping::Operation => span.label().to_string(),
            Grouping::Shape => match &span.shape {
                Some(shape) => format!("{} {shape}", span.label()),
                None => span.label().to_string(),
            },
            Grouping::Module => {
                let named = tree.ancestors(index).find_map(|outer| {
                    let module = self.spans[outer].module.as_deref()?;
                    (!module.is_empty()).then_some(module)
                });
                let outside = || format!("({})", tree.part[index].name());
                named.map_or_else(outside, str::to_string)
            }
        }
    }

    /// What batches are made of, over all threads.
    pub(crate) fn stage_rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for stage in &self.stages {
            let label = format!("batch: {}", stage.name);
            let place = rows.iter().position(|row| row.label == label);
            let place = place.unwrap_or_else(|| {
                rows.push(Row {
                    label,
                    ..Row::default()
                });
                rows.len() - 1
            });
            rows[place].calls += stage.count;
            rows[place].self_time += stage.time;
            rows[place].total_time += stage.time;
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.self_time));
        rows
    }
}

/// Rows that `Display` prints of each list.
const PRINTED: usize = 25;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.grouping {
            Grouping::Operation => "Operation",
            Grouping::Module => "Module",
            Grouping::Shape => "Operation and shapes",
        };
        let shown = self.rows.iter().take(PRINTED);
        let others = self.background.iter().take(PRINTED);
        let width = shown
            .chain(others)
            .map(|row| row.label.chars().count())
            .chain([what.len(), 20])
            .max()
            .unwrap_or(0)
            .min(72);
        writeln!(
            f,
            "{what:width$}  {:>7}  {:>10}  {:>6}  {:>10}  {:>9}  {:>6}",
            "Calls", "Self", "Self %", "Total", "GFLOP/s", "Peak %"
        )?;
        writeln!(f, "{}", "─".repeat(width + 60))?;
        self.lines(f, &self.rows, width)?;
        if !self.background.is_empty() {
            writeln!(f, "\nOn other threads at the same time:")?;
            self.lines(f, &self.background, width)?;
        }
        writeln!(f, "{}", "─".repeat(width + 60))?;
        write!(f, "Wall time {}", milliseconds(self.wall.as_nanos() as u64))?;
        match &self.machine {
            Some(machine) if machine.flops > 0.0 => write!(
                f,
                "; peak measured here: {:.0} GFLOP/s, {:.1} GB/s",
                machine.flops / 1e9,
                machine.bandwidth / 1e9
            ),
            _ => Ok(()),
        }
    }
}

impl Table {
    fn lines(&self, f: &mut fmt::Formatter<'_>, rows: &[Row], width: usize) -> fmt::Result {
        let wall = self.wall.as_nanos().max(1) as f64;
        for row in rows.iter().take(PRINTED) {
            let rate = match row.flops {
                0 => "-".to_string(),
                _ => format!("{:.1}", row.gflops()),
            };
            let peak = self
                .machine
                .as_ref()
                .and_then(|machine| row.share_of_peak(machine));
            let peak = peak.map_or("-".to_string(), |share| format!("{:.0}", 100.0 * share));
            let label: String = row.label.chars().take(width).collect();
            writeln!(
                f,
                "{label:width$}  {:>7}  {:>10}  {:>6.1}  {:>10}  {rate:>9}  {peak:>6}",
                row.calls,
                milliseconds(row.self_time),
                100.0 * row.self_time as f64 / wall,
                milliseconds(row.total_time),
            )?;
        }
        if rows.len() > PRINTED {
            let rest: u64 = rows[PRINTED..].iter().map(|row| row.self_time).sum();
            let count = rows.len() - PRINTED;
            writeln!(f, "and {count} rows more, {}", milliseconds(rest))?;
        }
        Ok(())
    }
}

/// `12.345 ms`.
pub(crate) fn milliseconds(nanoseconds: u64) -> String {
    format!("{:.3} ms", nanoseconds as f64 * 1e-6)
}
