//! Running a plan.

use std::time::{Duration, Instant};

use super::{Constant, Place, Plan, Step};
use crate::lower::{Fault, Io, Value};
use crate::metrics::KernelTime;
use crate::{Error, Result};
use tallow_graph::TensorType;
use tallow_kernels::buffer::Buffer;
use tallow_kernels::parallel;
use tallow_tensor::{rng, sync};

/// What the caller brings to a run.
pub(crate) struct Frame<'a, 'o> {
    /// The parameters, in the plan's order.
    pub(crate) params: &'a [&'a [f32]],
    /// The inputs, in the graph's order.
    pub(crate) inputs: &'a [Value<'a>],
    /// Memory for the outputs that the caller gives it for.
    pub(crate) outputs: &'a mut [&'o mut [f32]],
}

impl Plan {
    /// Computes what is kept, from the parameters. To be called before the first run and after they change.
    pub(crate) fn prepare(&mut self, params: &[&[f32]]) -> Result<()> {
        let Self {
            prepare,
            slots,
            kept,
            passing,
            constants,
            workspace,
            ..
        } = self;
        let mut frame = Frame {
            params,
            inputs: &[],
            outputs: &mut [],
        };
        let mut spare = Vec::new();
        for (index, step) in prepare.iter().enumerate() {
            for value in passing.iter().filter(|value| value.written == index) {
                kept[value.kept] = take(&mut spare, value.len);
            }
            let mut memory = MemoryOf {
                slots,
                kept,
                constants,
            };
            step.run(&mut memory, &mut frame, workspace)?;
            for value in passing.iter().filter(|value| value.last_read == index) {
                spare.push(std::mem::take(&mut kept[value.kept]));
            }
        }
        Ok(())
    }

    /// Runs every step, on a thread of the pool; random draws, and who shares statistics, are the calling thread's.
    pub(crate) fn run(&mut self, frame: &mut Frame<'_, '_>) -> Result<()> {
        let (random, joint) = (rng::state(), sync::current());
        let span = tracing::trace_span!(
            target: "tallow",
            "plan",
            arena = self.memory.planned,
            kernels = self.steps.len(),
            holders = self.holders.as_str(),
        );
        parallel::on_pool(|| {
            let _span = span.enter();
            let _joint = sync::continue_with(joint);
            let before = rng::state();
            rng::restore(random);
            let result = self.run_here(frame);
            rng::restore(before);
            result
        })
    }

    fn run_here(&mut self, frame: &mut Frame<'_, '_>) -> Result<()> {
        let Self {
            steps,
            slots,
            kept,
            constants,
            workspace,
            times,
            ..
        } = self;
        let mut memory = MemoryOf {
            slots,
            kept,
            constants,
        };
        if times.is_empty() {
            return steps
                .iter()
                .try_for_each(|step| step.run(&mut memory, frame, workspace));
        }
        for (step, (time, runs)) in steps.iter().zip(times) {
            let start = Instant::now();
            step.run(&mut memory, frame, workspace)?;
            *time += start.elapsed();
            *runs += 1;
        }
        Ok(())
    }

    /// Whether runs are timed from now on. Switching it on begins from zero.
    pub(crate) fn measure(&mut self, on: bool) {
        if on == self.times.is_empty() {
            let steps = if on { self.steps.len() } else { 0 };
            self.times = vec![(Duration::ZERO, 0); steps];
        }
    }

    /// What was timed.
    pub(crate) fn kernel_times(&self) -> impl Iterator<Item = KernelTime> {
        let timed = self.steps.iter().zip(&self.times);
        timed.map(|(step, &(time, runs))| KernelTime {
            kernel: step.name,
            module: step.scope.clone(),
            flops: step.flops,
            runs,
            time,
        })
    }

    /// Output number `index` after a run, where the caller didn't give memory for it, and its type.
    pub(crate) fn output(&self, index: usize) -> Option<(&[f32], &TensorType)> {
        let (place, ty) = self.outputs.get(index)?;
        let len = ty.elements() as usize;
        match *place {
            Place::Slot(slot) => Some((&self.slots[slot][..len], ty)),
            Place::Kept(kept) => Some((&self.kept[kept][..len], ty)),
            Place::Constant(constant) => match &self.constants[constant] {
                Constant::Floats(values) => Some((values, ty)),
                Constant::Ints(_) => None,
            },
            Place::Param(_) | Place::Input(_) | Place::Output(_) => None,
        }
    }
}

/// Memory of `len` floats, from what is there if it is large enough.
fn take(spare: &mut Vec<Buffer>, len: usize) -> Buffer {
    let large = spare
        .iter()
        .enumerate()
        .filter(|(_, b)| b.capacity() >= len);
    let place = large.min_by_key(|(_, buffer)| buffer.capacity());
    let place = place.map(|(place, _)| place);
    let mut buffer = place.map_or_else(Buffer::default, |place| spare.swap_remove(place));
    buffer.resize(len);
    buffer
}

/// Values that a step reads, at most, without allocating a list of them.
const FEW: usize = 8;

/// The plan's own values.
struct MemoryOf<'p> {
    slots: &'p mut [Buffer],
    kept: &'p mut [Buffer],
    constants: &'p [Constant],
}

impl Step {
    fn run(
        &self,
        memory: &mut MemoryOf<'_>,
        frame: &mut Frame<'_, '_>,
        workspace: &tallow_kernels::workspace::Workspace,
    ) -> Result<()> {
        let _span = tracing::trace_span!(
            target: "tallow",
            "kernel",
            op = self.name,
            module = self.scope.as_str(),
            shape = self.shape.as_str(),
            flops = self.flops,
            bytes = self.bytes,
        )
        .entered();
        // What is written is taken out, so that everything else can be read.
        match self.writes {
            Place::Slot(slot) => {
                let mut out = std::mem::take(&mut memory.slots[slot]);
                let result = self.call(memory, frame, workspace, &mut out[..self.len]);
                memory.slots[slot] = out;
                result
            }
            Place::Kept(kept) => {
                let mut out = std::mem::take(&mut memory.kept[kept]);
                let result = self.call(memory, frame, workspace, &mut out[..self.len]);
                memory.kept[kept] = out;
                result
            }
            Place::Output(output) => {
                let out = std::mem::take(&mut frame.outputs[output]);
                let result = self.call(memory, frame, workspace, out);
                frame.outputs[output] = out;
                result
            }
            Place::Param(_) | Place::Input(_) | Place::Constant(_) => Ok(()),
        }
    }

    fn call(
        &self,
        memory: &MemoryOf<'_>,
        frame: &Frame<'_, '_>,
        workspace: &tallow_kernels::workspace::Workspace,
        out: &mut [f32],
    ) -> Result<()> {
        let value = |&(place, len): &(Place, usize)| match place {
            // The slot that is written is taken out: what it held is in `out`.
            Place::Slot(slot) => Value::Floats(memory.slots[slot].get(..len).unwrap_or(&[])),
            Place::Kept(kept) => Value::Floats(&memory.kept[kept]),
            Place::Param(param) => Value::Floats(frame.params[param]),
            Place::Output(output) => Value::Floats(frame.outputs[output]),
            Place::Input(input) => frame.inputs[input],
            Place::Constant(constant) => match &memory.constants[constant] {
                Constant::Floats(values) => Value::Floats(values),
                Constant::Ints(values) => Value::Ints(values),
            },
        };
        let mut few = [Value::Floats(&[]); FEW];
        let many: Vec<Value<'_>>;
        let reads = match few.get_mut(..self.reads.len()) {
            Some(few) => {
                for (to, read) in few.iter_mut().zip(&self.reads) {
                    *to = value(read);
                }
                &*few
            }
            None => {
                many = self.reads.iter().map(value).collect();
                &many
            }
        };
        let mut io = Io {
            reads,
            taken: self.taken,
            out,
            workspace,
        };
        (self.run)(&mut io).map_err(|fault| match fault {
            Fault::Other(error) => error,
            Fault::Kernel(source) => Error::Kernel {
                operation: self.name,
                module: self.scope.clone(),
                source: Box::new(source),
            },
        })
    }
}
