//! Making a plan: lowering every node, finding out how long values live, giving them places.

use std::collections::{HashMap, HashSet};

use tallow_graph::op::Literal;
use tallow_graph::{DType, Graph, Node, NodeId, Op, TensorType, types};
use tallow_kernels::buffer::Buffer;
use tallow_kernels::workspace::Workspace;

use super::memory::{self, Life};
use super::{Choices, Constant, Memory, Passing, Place, Plan, Step};
use crate::eager::Modules;
use crate::lower::{self, Context, Lowered, Site};
use crate::{Error, Result};

/// How a plan is made.
pub(crate) struct Settings<'a> {
    pub(crate) choices: &'a mut dyn Choices,
    /// Whether what depends on parameters alone is kept between runs.
    pub(crate) keep: bool,
    /// Outputs that the caller gives the memory for, by their number.
    pub(crate) external: &'a [usize],
    /// The modules that run as they are.
    pub(crate) modules: &'a Modules,
    /// Whether products are to be computed by the CPU's instructions for bfloat16.
    pub(crate) bf16: bool,
}

/// Makes a plan for a graph that all passes have seen.
pub(crate) fn build(graph: &Graph, settings: Settings<'_>) -> Result<Plan> {
    let mut builder = Builder::new(graph, &settings)?;
    let mut context = Context {
        choices: settings.choices,
        modules: settings.modules,
        bf16: settings.bf16,
    };
    for node in &graph.nodes {
        builder.node(node, &mut context)?;
    }
    builder.outputs(settings.external)?;
    builder.finish()
}

/// A value while its place isn't known yet: a number in `Builder::values`, or a place that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Value(usize),
    Fixed(Place),
}

/// A call while places aren't known yet.
struct Call {
    step: Step,
    reads: Vec<Source>,
    in_place: &'static [usize],
    writes: Source,
}

struct Builder<'g> {
    graph: &'g Graph,
    /// What each node's value is.
    sources: Vec<Source>,
    /// Whether each node depends on parameters and constants alone.
    is_static: Vec<bool>,
    keep: bool,
    prepare: Vec<Call>,
    calls: Vec<Call>,
    /// The length of each value.
    values: Vec<usize>,
    kept: Vec<usize>,
    params: Vec<String>,
    constants: Vec<Constant>,
    outputs: Vec<Source>,
}

impl<'g> Builder<'g> {
    fn new(graph: &'g Graph, settings: &Settings<'_>) -> Result<Self> {
        let mut is_static = vec![false; graph.nodes.len()];
        for node in &graph.nodes {
            is_static[node.id.0] = match node.op {
                Op::Param(_) | Op::Constant(_) => true,
                Op::Input(_) | Op::Dropout(_) | Op::DropPath(_) | Op::Opaque(_) => false,
                _ => node.inputs.iter().all(|id| is_static[id.0]),
            };
        }
        Ok(Self {
            graph,
            sources: Vec::with_capacity(graph.nodes.len()),
            is_static,
            keep: settings.keep,
            prepare: Vec::new(),
            calls: Vec::new(),
            values: Vec::new(),
            kept: Vec::new(),
            params: Vec::new(),
            constants: Vec::new(),
            outputs: Vec::new(),
        })
    }

    fn node(&mut self, node: &Node, context: &mut Context<'_>) -> Result<()> {
        let source = match &node.op {
            Op::Input(_) => {
                let place = self.graph.inputs.iter().position(|id| *id == node.id);
                Source::Fixed(Place::Input(place.unwrap_or_default()))
            }
            Op::Param(param) => {
                check_float(node)?;
                self.params.push(param.name.clone());
                Source::Fixed(Place::Param(self.params.len() - 1))
            }
            Op::Constant(constant) => {
                self.constants.push(constant_of(node, &constant.value)?);
                Source::Fixed(Place::Constant(self.constants.len() - 1))
            }
            _ => self.operation(node, context)?,
        };
        self.sources.push(source);
        Ok(())
    }

    fn operation(&mut self, node: &Node, context: &mut Context<'_>) -> Result<Source> {
        let inputs = node.inputs.iter().map(|id| &self.graph.nodes[id.0].output);
        let site = Site {
            node,
            inputs: inputs.collect(),
            bf16: context.bf16,
            packs: !self.keep,
        };
        let Some(lowered) = lower::lower(&site, context)? else {
            return Ok(self.sources[node.inputs[0].0]);
        };
        check_float(node)?;
        let mut reads: Vec<Source> = node.inputs.iter().map(|id| self.sources[id.0]).collect();
        let kept = self.keep && self.is_static[node.id.0];
        let Lowered {
            run,
            in_place,
            pack,
        } = lowered;
        if let Some(pack) = pack {
            let weight = node.inputs[pack.input];
            let kept = self.keep && self.is_static[weight.0];
            let step = step_of(node, "pack_weight", 0, pack.run, pack.len);
            reads[pack.input] = self.call(step, vec![reads[pack.input]], &[], kept);
        }
        let flops = node.op.flops(&owned(&site.inputs), &node.output);
        let len = node.output.elements() as usize;
        let mut step = step_of(node, node.op.name(), flops, run, len);
        step.shape = types::signature(site.inputs.iter().copied(), &node.output);
        step.bytes = site.inputs.iter().map(|ty| ty.bytes()).sum::<u64>() + node.output.bytes();
        Ok(self.call(step, reads, in_place, kept))
    }

    /// Adds a call that writes a new value.
    fn call(
        &mut self,
        step: Step,
        reads: Vec<Source>,
        in_place: &'static [usize],
        kept: bool,
    ) -> Source {
        let len = step.len;
        if kept {
            let writes = Source::Fixed(Place::Kept(self.kept.len()));
            self.kept.push(len);
            self.prepare.push(Call {
                step,
                reads,
                in_place: &[],
                writes,
            });
            return writes;
        }
        let writes = Source::Value(self.values.len());
        self.values.push(len);
        self.calls.push(Call {
            step,
            reads,
            in_place,
            writes,
        });
        writes
    }

    /// Settles where outputs lie; those that the caller gives memory for are written there, or copied.
    fn outputs(&mut self, external: &[usize]) -> Result<()> {
        for (number, id) in self.graph.outputs.iter().enumerate() {
            let mut source = self.sources[id.0];
            if external.contains(&number) {
                let slot = external.iter().position(|&n| n == number);
                let place = Source::Fixed(Place::Output(slot.unwrap_or_default()));
                self.bind(*id, source, place);
                source = place;
            } else if let Source::Fixed(Place::Param(_) | Place::Input(_)) = source {
                let node = &self.graph.nodes[id.0];
                check_float(node)?;
                source = self.call(copy(node), vec![source], &[], false);
            }
            self.outputs.push(source);
        }
        Ok(())
    }

    /// Lets the call that makes `source` write to `place` instead, or copies it there.
    fn bind(&mut self, id: NodeId, source: Source, place: Source) {
        let is_value = matches!(source, Source::Value(_));
        if !is_value || self.outputs.contains(&source) {
            self.calls.push(Call {
                step: copy(&self.graph.nodes[id.0]),
                reads: vec![source],
                in_place: &[],
                writes: place,
            });
            return;
        }
        for call in &mut self.calls {
            if call.writes == source {
                call.writes = place;
                call.in_place = &[];
            }
            for read in &mut call.reads {
                if *read == source {
                    *read = place;
                }
            }
        }
        for other in &mut self.sources {
            if *other == source {
                *other = place;
            }
        }
    }

    fn finish(mut self) -> Result<Plan> {
        let mut lives = self.lives();
        let takes = self.takes(&mut lives);
        let slots = memory::assign(&order(&lives));
        let passing = self.passing();
        for passing in &passing {
            self.kept[passing.kept] = 0;
        }
        let memory = account(&lives, &slots.lens, &self.kept);
        let holders = self.holders(&lives);
        let of = slots_in_order(&lives, &slots.of);
        let place = |source: Source| match source {
            Source::Fixed(place) => place,
            Source::Value(value) => Place::Slot(of[value]),
        };
        let lens = &self.values;
        let read = |source: Source| match source {
            Source::Fixed(_) => (place(source), 0),
            Source::Value(value) => (place(source), lens[value]),
        };
        let settle = |(index, call): (usize, Call)| {
            let Call {
                mut step,
                reads,
                writes,
                ..
            } = call;
            step.reads = reads.into_iter().map(read).collect();
            step.writes = place(writes);
            step.taken = takes.get(&index).copied();
            step
        };
        let steps = self.calls.into_iter().enumerate().map(settle).collect();
        let prepare = self.prepare.into_iter().map(|call| {
            let Call {
                mut step,
                reads,
                writes,
                ..
            } = call;
            step.reads = reads.into_iter().map(read).collect();
            step.writes = place(writes);
            step
        });
        let prepare = prepare.collect();
        let types = |id: &NodeId| self.graph.nodes[id.0].output.clone();
        let outputs = self.outputs.iter().zip(&self.graph.outputs);
        Ok(Plan {
            prepare,
            steps,
            slots: slots.lens.iter().copied().map(Buffer::new).collect(),
            kept: self.kept.iter().copied().map(Buffer::new).collect(),
            passing,
            constants: self.constants,
            params: self.params,
            outputs: outputs
                .map(|(source, id)| (place(*source), types(id)))
                .collect(),
            memory,
            holders,
            workspace: Workspace::new(),
            times: Vec::new(),
        })
    }

    /// The kept values that neither a run nor the caller reads.
    fn passing(&self) -> Vec<Passing> {
        let calls = self.calls.iter().flat_map(|call| &call.reads);
        let stays: HashSet<Source> = calls.chain(&self.outputs).copied().collect();
        let mut last_read: HashMap<Source, usize> = HashMap::new();
        for (index, call) in self.prepare.iter().enumerate() {
            last_read.extend(call.reads.iter().map(|read| (*read, index)));
        }
        let passing = self.prepare.iter().enumerate().filter_map(|(index, call)| {
            let Source::Fixed(Place::Kept(kept)) = call.writes else {
                return None;
            };
            (!stays.contains(&call.writes)).then(|| Passing {
                kept,
                len: call.step.len,
                written: index,
                last_read: last_read.get(&call.writes).copied().unwrap_or(index),
            })
        });
        passing.collect()
    }

    /// When each value is written and read last; `None` for one that was bound to an output.
    fn lives(&self) -> Vec<Option<Life>> {
        let mut lives: Vec<Option<Life>> = vec![None; self.values.len()];
        for (index, call) in self.calls.iter().enumerate() {
            for read in &call.reads {
                if let Source::Value(value) = read
                    && let Some(life) = &mut lives[*value]
                {
                    life.last_read = index;
                }
            }
            if let Source::Value(value) = call.writes {
                lives[value] = Some(Life {
                    len: self.values[value],
                    written: index,
                    last_read: index,
                    takes: None,
                });
            }
        }
        for output in &self.outputs {
            if let Source::Value(value) = output
                && let Some(life) = &mut lives[*value]
            {
                life.last_read = usize::MAX;
            }
        }
        lives
    }

    /// The largest values that live at the peak, `bytes, operation, module` separated by tabs, a line each.
    fn holders(&self, lives: &[Option<Life>]) -> String {
        const LISTED: usize = 10;
        let alive = |step: usize| {
            let values = lives.iter().flatten();
            values.filter(move |life| life.written <= step && step <= life.last_read)
        };
        let size = |step: &usize| alive(*step).map(|life| life.len).sum::<usize>();
        let Some(peak) = (0..self.calls.len()).max_by_key(size) else {
            return String::new();
        };
        let mut largest: Vec<&Life> = alive(peak).collect();
        largest.sort_by_key(|life| std::cmp::Reverse(life.len));
        let lines = largest.iter().take(LISTED).map(|life| {
            let step = &self.calls[life.written].step;
            format!("{}\t{}\t{}", 4 * life.len, step.name, step.scope)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Which input's memory a call writes into, for calls that can.
    fn takes(&self, lives: &mut [Option<Life>]) -> HashMap<usize, usize> {
        let mut takes = HashMap::new();
        for (index, call) in self.calls.iter().enumerate() {
            let Source::Value(written) = call.writes else {
                continue;
            };
            for &input in call.in_place {
                let Some(&Source::Value(read)) = call.reads.get(input) else {
                    continue;
                };
                let once = call
                    .reads
                    .iter()
                    .filter(|&&r| r == Source::Value(read))
                    .count()
                    == 1;
                let dies = lives[read].is_some_and(|life| life.last_read == index);
                if once && dies && self.values[read] == self.values[written] {
                    if let Some(life) = &mut lives[written] {
                        life.takes = Some(read);
                    }
                    takes.insert(index, input);
                    break;
                }
            }
        }
        takes
    }
}

/// The lives of values that have one, in the order in which they are written, which is that of their numbers.
fn order(lives: &[Option<Life>]) -> Vec<Life> {
    let mut places = vec![0; lives.len()];
    let mut ordered = Vec::new();
    for (value, life) in lives.iter().enumerate() {
        if let Some(life) = life {
            places[value] = ordered.len();
            ordered.push(Life {
                takes: life.takes.map(|taken| places[taken]),
                ..*life
            });
        }
    }
    ordered
}

/// The slot of each value, by its own number.
fn slots_in_order(lives: &[Option<Life>], of: &[usize]) -> Vec<usize> {
    let mut slots = of.iter();
    let slot = |life: &Option<Life>| match life {
        Some(_) => slots.next().copied().unwrap_or_default(),
        None => usize::MAX,
    };
    lives.iter().map(slot).collect()
}

fn account(lives: &[Option<Life>], lens: &[usize], kept: &[usize]) -> Memory {
    let bytes = |floats: usize| 4 * floats as u64;
    let kept = bytes(kept.iter().sum());
    let all: Vec<Life> = lives.iter().flatten().copied().collect();
    let live_at = |step: usize| -> usize {
        let alive = all
            .iter()
            .filter(|life| life.written <= step && step <= life.last_read);
        // A value that takes another's memory over counts once.
        alive
            .filter(|life| life.takes.is_none() || life.written != step)
            .map(|l| l.len)
            .sum()
    };
    let live = all
        .iter()
        .map(|life| live_at(life.written))
        .max()
        .unwrap_or(0);
    Memory {
        planned: bytes(lens.iter().sum()) + kept,
        live: bytes(live) + kept,
        naive: bytes(all.iter().map(|life| life.len).sum()) + kept,
    }
}

fn step_of(node: &Node, name: &'static str, flops: u64, run: lower::Run, len: usize) -> Step {
    Step {
        name,
        scope: node.scope.clone(),
        flops,
        shape: types::signature([], &node.output),
        bytes: 8 * len as u64,
        run,
        reads: Vec::new(),
        writes: Place::Slot(usize::MAX),
        len,
        taken: None,
    }
}

/// A call that copies a node's value.
fn copy(node: &Node) -> Step {
    let run = lower::kernel(|io| {
        io.out.copy_from_slice(io.floats(0));
        Ok(())
    });
    step_of(node, "copy", 0, run, node.output.elements() as usize)
}

fn owned(types: &[&TensorType]) -> Vec<TensorType> {
    types.iter().map(|&ty| ty.clone()).collect()
}

fn check_float(node: &Node) -> Result<()> {
    if node.output.dtype == DType::F32 {
        return Ok(());
    }
    Err(Error::Unsupported {
        operation: node.op.name().to_string(),
        module: node.scope.clone(),
        problem: format!("gives {}", node.output),
        remedy: "compiled plans work in f32; convert the model's parameters and inputs to it",
    })
}

fn constant_of(node: &Node, literal: &Literal) -> Result<Constant> {
    let bytes = &literal.bytes;
    Ok(match literal.ty.dtype {
        DType::F32 => Constant::Floats(numbers(bytes, f32::from_le_bytes)),
        DType::I64 => Constant::Ints(numbers(bytes, i64::from_le_bytes)),
        DType::U32 => Constant::Ints(numbers(bytes, |b| i64::from(u32::from_le_bytes(b)))),
        DType::U8 => Constant::Ints(bytes.iter().map(|&b| i64::from(b)).collect()),
        _ => {
            check_float(node)?;
            Constant::Floats(Vec::new())
        }
    })
}

fn numbers<const N: usize, T>(bytes: &[u8], from: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes
        .as_chunks::<N>()
        .0
        .iter()
        .map(|chunk| from(*chunk))
        .collect()
}
