//! Calls of modules that may be opaque: what was recorded inside is kept, or taken back and replaced by one node.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use candle_core::Tensor;
use tallow_graph::op::Opaque;
use tallow_graph::{NodeId, Op};

use super::breaks::Break;
use super::identify;
use super::recorder::{Reader, Recorder, Unrecorded};
use crate::opaque::OpaqueModule;
use crate::{Result, convert, scope};

/// What a recorder knows about such calls.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Calls that have to be opaque, by their number, and why. `None` where no call may be.
    pub(super) forced: Option<BTreeMap<usize, Break>>,
    /// Calls so far.
    count: usize,
    /// Those that were recorded as what they do: number and nodes.
    inline: Vec<(usize, Range<usize>)>,
    /// Those that became a node.
    pub(super) opaque: Vec<OpaqueModule>,
}

impl Calls {
    /// Calls that may be opaque, and some that must.
    pub(super) fn allowed(forced: BTreeMap<usize, Break>) -> Self {
        Self {
            forced: Some(forced),
            ..Self::default()
        }
    }

    /// The innermost call that a node was recorded in.
    pub(super) fn around(&self, node: NodeId) -> Option<usize> {
        let around = self
            .inline
            .iter()
            .filter(|(_, nodes)| nodes.contains(&node.0));
        around
            .min_by_key(|(_, nodes)| nodes.len())
            .map(|(number, _)| *number)
    }
}

/// A call that is running, and the state of the recorder before it.
#[derive(Debug)]
pub(crate) struct Entry {
    number: usize,
    forced: Option<Break>,
    nodes: usize,
    inputs: usize,
    unrecorded: usize,
    constants: usize,
    unnamed: usize,
    inline: usize,
    opaque: usize,
    names: HashSet<String>,
}

impl Entry {
    /// Whether nothing that the module does is to be recorded.
    pub(crate) fn is_forced(&self) -> bool {
        self.forced.is_some()
    }
}

impl Recorder {
    /// The number of the next call. Those inside an opaque module count too, so that numbers are the same in every run.
    pub(crate) fn count_call(&mut self) -> usize {
        self.calls.count += 1;
        self.calls.count - 1
    }

    /// Notes that a module begins; `None` where it can't be opaque. One that reads what wasn't recorded isn't to
    /// blame for it.
    pub(crate) fn enter_call(&mut self, number: usize, xs: &Tensor) -> Option<Entry> {
        let forced = self.calls.forced.as_ref()?.get(&number).cloned();
        self.nodes.contains_key(&xs.id()).then(|| Entry {
            number,
            forced,
            nodes: self.graph.nodes.len(),
            inputs: self.graph.inputs.len(),
            unrecorded: self.unrecorded.len(),
            constants: self.constants.len(),
            unnamed: self.unnamed.len(),
            inline: self.calls.inline.len(),
            opaque: self.calls.opaque.len(),
            names: self.names.clone(),
        })
    }

    /// Notes that a module ended, and makes it opaque if it couldn't be recorded.
    pub(crate) fn leave_call(
        &mut self,
        entry: Entry,
        module: OpaqueModule,
        xs: &Tensor,
        ys: &Tensor,
    ) {
        let is_known = self.nodes.contains_key(&ys.id());
        let is_whole = self.unrecorded.len() == entry.unrecorded && is_known;
        if is_whole && entry.forced.is_none() {
            let nodes = entry.nodes..self.graph.nodes.len();
            self.calls.inline.push((entry.number, nodes));
            return;
        }
        if self.failure.is_none()
            && let Err(error) = self.make_opaque(entry, module, xs, ys)
        {
            self.failure = Some(error);
        }
    }

    fn make_opaque(
        &mut self,
        entry: Entry,
        mut module: OpaqueModule,
        xs: &Tensor,
        ys: &Tensor,
    ) -> Result<()> {
        module.breaks = match &entry.forced {
            Some(found) => vec![found.clone()],
            None => self.breaks_since(&entry, ys)?,
        };
        self.take_back(entry);
        let op = Op::Opaque(Opaque {
            module: self.calls.opaque.len(),
            output: convert::tensor_type(ys)?,
        });
        let id = self.nodes[&xs.id()];
        // A module that hands a value on is no reason to know that value by another name.
        if !self.nodes.contains_key(&ys.id()) {
            self.push(op, &[id], ys, module.path.clone())?;
            self.calls.opaque.push(module);
        }
        Ok(())
    }

    /// What a module read, or gave, that wasn't recorded.
    fn breaks_since(&mut self, entry: &Entry, ys: &Tensor) -> Result<Vec<Break>> {
        if self.unrecorded.len() == entry.unrecorded {
            let after = self.last_operation();
            let name = format!("unrecorded {}", self.unrecorded.len());
            let reader = Reader {
                operation: None,
                role: "the result",
                scope: scope::path(),
            };
            let node = self.input(&name, ys)?;
            self.unrecorded.push(Unrecorded {
                node,
                value: ys.clone(),
                reader,
                after,
            });
        }
        let found = self.unrecorded[entry.unrecorded..].iter();
        let described = found.map(|broken| Break {
            module: broken.reader.scope.clone(),
            ..identify::describe(self, broken, None)
        });
        Ok(described.collect())
    }

    /// Forgets what was recorded since a call began.
    fn take_back(&mut self, entry: Entry) {
        self.graph.nodes.truncate(entry.nodes);
        self.graph.inputs.truncate(entry.inputs);
        self.values.truncate(entry.nodes);
        self.nodes.retain(|_, id| id.0 < entry.nodes);
        self.unrecorded.truncate(entry.unrecorded);
        self.constants.truncate(entry.constants);
        self.unnamed.truncate(entry.unnamed);
        self.calls.inline.truncate(entry.inline);
        self.calls.opaque.truncate(entry.opaque);
        self.names = entry.names;
    }
}
