//! Whose own each moment is: the spans of a profile as a tree, their self times, and the parts of a step that these add
//! up to.
//!
//! A span's self time is its time without that of the spans within it, wherever those run: a compiled plan runs on a thread of
//! the pool while the thread that called it waits, and the plan is that call's child. So the self times of the main thread's
//! tree add up to the time of its outermost spans, which with what lies between them is the wall time.

use std::collections::HashMap;

use serde::Serialize;

use crate::Profile;
use crate::profile::Span;

/// The spans of a profile as a tree.
pub(crate) struct Tree {
    /// Self time of each span, in nanoseconds.
    pub(crate) own: Vec<u64>,
    /// The span around each one.
    pub(crate) parent: Vec<Option<usize>>,
    /// Whether each belongs to the main thread's time.
    pub(crate) main: Vec<bool>,
    /// The part of a step that each belongs to.
    pub(crate) part: Vec<Part>,
}

/// A part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Waiting for batches, or making them on the main thread.
    Data,
    /// The model and the loss.
    Forward,
    /// The gradients.
    Backward,
    /// The update of the parameters.
    Optimizer,
    /// Measuring the model.
    Evaluation,
    /// Capturing and compiling.
    Compile,
    /// Hooks, logs and checkpoints.
    Hooks,
    /// Exchange with other processes.
    Collective,
    /// Spans of the program's own, and what lies between spans.
    Other,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Data,
        Self::Forward,
        Self::Backward,
        Self::Optimizer,
        Self::Evaluation,
        Self::Compile,
        Self::Hooks,
        Self::Collective,
        Self::Other,
    ];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "waiting for data",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Evaluation => "evaluation",
            Self::Compile => "compiling",
            Self::Hooks => "hooks",
            Self::Collective => "collectives",
            Self::Other => "other",
        }
    }
}

/// The time of a part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PartTime {
    /// The part.
    pub part: Part,
    /// Its time in nanoseconds.
    pub time: u64,
    /// Its share of the wall time.
    pub share: f64,
}

impl Tree {
    pub(crate) fn of(profile: &Profile) -> Self {
        let spans = &profile.spans;
        let parent = parents(spans);
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); spans.len()];
        for (index, parent) in parent.iter().enumerate() {
            if let Some(parent) = parent {
                children[*parent].push(index);
            }
        }
        let own = spans
            .iter()
            .zip(&children)
            .map(|(span, children)| span.duration() - covered(span, children, spans));
        let mut tree = Self {
            own: own.collect(),
            main: vec![false; spans.len()],
            part: vec![Part::Other; spans.len()],
            parent,
        };
        // A parent begins before its children, so it comes before them.
        for (index, span) in spans.iter().enumerate() {
            let parent = tree.parent[index];
            tree.main[index] = match parent {
                Some(parent) => tree.main[parent],
                None => span.opened_by == profile.main_thread,
            };
            tree.part[index] = part(span, parent.map(|parent| tree.part[parent]));
        }
        tree
    }

    /// The span itself and those around it, from the inside.
    pub(crate) fn ancestors(&self, index: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(index), |&index| self.parent[index])
    }

    /// Self times of the main thread's tree together.
    pub(crate) fn accounted(&self) -> u64 {
        let own = self.own.iter().zip(&self.main);
        own.filter(|&(_, main)| *main).map(|(own, _)| own).sum()
    }
}

/// The segment of its parent that each span begins in; spans are ordered by their beginning.
fn parents(spans: &[Span]) -> Vec<Option<usize>> {
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut parents = Vec::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate() {
        let parent = span.parent.and_then(|parent| last.get(&parent).copied());
        // A child that outlives its parent, as spans of asynchronous code may, begins a tree of its own.
        parents
            .push(parent.filter(|&parent| span.start < spans[parent].end || span.duration() == 0));
        last.insert(span.id, index);
    }
    parents
}

/// The part of a span's time that its children take, once where they run at the same time.
fn covered(span: &Span, children: &[usize], spans: &[Span]) -> u64 {
    let (mut sum, mut until) = (0, span.start);
    for &child in children {
        let child = &spans[child];
        let (start, end) = (child.start.max(until), child.end.min(span.end));
        sum += end.saturating_sub(start);
        until = until.max(end);
    }
    sum
}

fn part(span: &Span, outer: Option<Part>) -> Part {
    let backward = |span: &Span| span.op.as_deref().is_some_and(|op| op.contains("backward"));
    match (span.name, outer) {
        ("data" | "data_wait" | "batch" | "items", _) | (_, Some(Part::Data)) => Part::Data,
        ("compile", _) | (_, Some(Part::Compile)) => Part::Compile,
        ("evaluate", _) | (_, Some(Part::Evaluation)) => Part::Evaluation,
        ("hooks", _) | (_, Some(Part::Hooks)) => Part::Hooks,
        ("collective", _) => Part::Collective,
        ("optimizer" | "update" | "clip" | "ema", _) | (_, Some(Part::Optimizer)) => {
            Part::Optimizer
        }
        ("backward" | "op_backward", _) | (_, Some(Part::Backward)) => Part::Backward,
        ("kernel", _) if backward(span) => Part::Backward,
        ("forward" | "loss" | "plan" | "compiled_step" | "kernel" | "op" | "module", _) => {
            Part::Forward
        }
        (_, outer) => outer.unwrap_or(Part::Other),
    }
}

impl Profile {
    /// What the wall time goes to: each part of a step with its time, those without time left out. The times add up to
    /// [`wall`](Self::wall).
    pub fn parts(&self) -> Vec<PartTime> {
        let tree = Tree::of(self);
        let wall = self.wall_nanoseconds();
        let sums = self.part_sums(&tree, 0, u64::MAX);
        let each = Part::ALL.into_iter().map(|part| {
            let between = match part {
                Part::Other => wall.saturating_sub(tree.accounted()),
                _ => 0,
            };
            let time = sums.get(&part).copied().unwrap_or(0) + between;
            PartTime {
                part,
                time,
                share: time as f64 / wall.max(1) as f64,
            }
        });
        each.filter(|part| part.time > 0).collect()
    }

    /// The share of the wall time that lies within spans of the main thread.
    pub fn accounted(&self) -> f64 {
        Tree::of(self).accounted() as f64 / self.wall_nanoseconds().max(1) as f64
    }

    /// Self times of the main thread's spans that begin in a stretch, by part.
    pub(crate) fn part_sums(&self, tree: &Tree, start: u64, end: u64) -> HashMap<Part, u64> {
        let mut sums = HashMap::new();
        for (index, span) in self.spans.iter().enumerate() {
            if tree.main[index] && (start..end).contains(&span.start) {
                *sums.entry(tree.part[index]).or_default() += tree.own[index];
            }
        }
        sums
    }
}
