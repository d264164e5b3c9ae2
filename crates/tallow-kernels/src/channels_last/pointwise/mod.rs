//! Several elementwise steps in one pass over memory, in any layout.
//!
//! A [`Program`] is a list of [`Step`]s, each of which gives a register its value from earlier ones. It runs over tiles
//! that stay in the first-level cache: intermediate values never go to memory. Each step runs the loop that
//! [`elementwise`](crate::elementwise) and [`activation`](crate::activation) run, so that the result has the bits of
//! these kernels called one after another.
//!
//! ```
//! use tallow_kernels::activation::Activation;
//! use tallow_kernels::channels_last::pointwise::{Operand, Program, Step, run};
//!
//! // silu(x + bias) * gate
//! let program = Program::new(&[
//!     Step::Input(0),
//!     Step::Input(1),
//!     Step::Add(0, 1),
//!     Step::Activate(Activation::Silu, 2),
//!     Step::Input(2),
//!     Step::Mul(3, 4),
//! ])?;
//! let x = [1.0, -1.0, 0.5, 2.0];
//! let bias = [-1.0, 1.0];
//! let mut y = [f32::NAN; 4];
//! let inputs = [Operand::Slice(&x), Operand::Repeated(&bias), Operand::Scalar(3.0)];
//! run(&program, &inputs, &mut y)?;
//! assert_eq!(y[..2], [0.0, 0.0]);
//! # Ok::<(), tallow_kernels::Error>(())
//! ```

mod program;

pub use program::{Program, Step};

use crate::activation::{gradients, values};
use crate::elementwise::{Difference, Product, Quotient, Scale, Shift, Sum, map_leaf, pair_leaf};
use crate::error::{Error, Result, check_len};
use crate::parallel::{LEAF, for_each};
use program::SLOTS;

/// Elements that go through all steps before the next ones do; all slots of that length fit in the first-level cache.
const TILE: usize = 512;

/// What [`Step::Input`] gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operand<'a> {
    /// As many elements as the output has.
    Slice(&'a [f32]),
    /// One number for all elements.
    Scalar(f32),
    /// A row that repeats, such as `[C]` beside `[N, H, W, C]`; its length divides the output's.
    Repeated(&'a [f32]),
    /// What the output held before.
    Out,
}

/// Runs `program` for each element of `out`.
///
/// # Errors
/// [`Error::Geometry`] where `inputs` are fewer or more than the program's, or a repeated row doesn't divide `out`;
/// [`Error::Length`] for a slice of another length than `out`.
pub fn run(program: &Program, inputs: &[Operand<'_>], out: &mut [f32]) -> Result<()> {
    check(program, inputs, out.len())?;
    for_each(out.len(), LEAF, out, |first, out| {
        let mut slots = [[0.0; TILE]; SLOTS];
        for (tile, out) in out.chunks_mut(TILE).enumerate() {
            let tile = Tile {
                program,
                inputs,
                first: first + tile * TILE,
                len: out.len(),
            };
            tile.run(&mut slots, out);
        }
    });
    Ok(())
}

fn check(program: &Program, inputs: &[Operand<'_>], len: usize) -> Result<()> {
    const KERNEL: &str = "pointwise";
    let geometry = |problem: String| {
        Err(Error::Geometry {
            kernel: KERNEL,
            problem,
        })
    };
    if inputs.len() != program.inputs() {
        return geometry(format!(
            "the program has {} inputs, but {} operands were given",
            program.inputs(),
            inputs.len()
        ));
    }
    for input in inputs {
        match input {
            Operand::Slice(slice) => check_len(KERNEL, "input", slice, len)?,
            Operand::Repeated(row) if row.is_empty() || !len.is_multiple_of(row.len()) => {
                return geometry(format!(
                    "a row of {} elements can't repeat in {len}; pass one whose length divides it",
                    row.len()
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

type Slot = [f32; TILE];

/// Some elements on their way through the steps.
struct Tile<'a> {
    program: &'a Program,
    inputs: &'a [Operand<'a>],
    /// The number of the first element.
    first: usize,
    len: usize,
}

impl Tile<'_> {
    fn run(&self, slots: &mut [Slot; SLOTS], out: &mut [f32]) {
        let last = self.program.steps().len() - 1;
        for (register, &step) in self.program.steps().iter().enumerate() {
            if register == last {
                match step {
                    Step::Input(input) if self.inputs[input] == Operand::Out => {}
                    Step::Input(input) => self.fill(input, &[], out),
                    _ => self.step(step, [slots, &[]], out),
                }
                return;
            }
            let slot = self.program.slot(register);
            let (before, rest) = slots.split_at_mut(slot);
            let (to, after) = rest
                .split_first_mut()
                .expect("a slot's number is below SLOTS");
            let to = &mut to[..self.len];
            match step {
                // Read where it lies.
                Step::Input(input) if matches!(self.inputs[input], Operand::Slice(_)) => {}
                Step::Input(input) => self.fill(input, out, to),
                _ => self.step(step, [before, after], to),
            }
        }
    }

    /// Writes an operand's elements.
    fn fill(&self, input: usize, out: &[f32], to: &mut [f32]) {
        match self.inputs[input] {
            Operand::Slice(slice) => to.copy_from_slice(&slice[self.first..][..self.len]),
            Operand::Scalar(value) => to.fill(value),
            Operand::Out => to.copy_from_slice(out),
            Operand::Repeated(row) => repeat(row, self.first % row.len(), to),
        }
    }

    /// Runs the loop of a step that isn't an input. Slots `others` are those before and after the one written.
    fn step(&self, step: Step, others: [&[Slot]; 2], to: &mut [f32]) {
        let of = |register: usize| self.register(register, others);
        match step {
            Step::Input(_) => unreachable!("inputs are filled in"),
            Step::Add(a, b) => pair_leaf::<Sum>(of(a), of(b), to),
            Step::Sub(a, b) => pair_leaf::<Difference>(of(a), of(b), to),
            Step::Mul(a, b) => pair_leaf::<Product>(of(a), of(b), to),
            Step::Div(a, b) => pair_leaf::<Quotient>(of(a), of(b), to),
            Step::AddScalar(x, value) => map_leaf::<Shift>(of(x), value, 0.0, to),
            Step::MulScalar(x, value) => map_leaf::<Scale>(of(x), value, 0.0, to),
            Step::Activate(act, x) => values(act)(of(x), to),
            Step::ActivateGradient { act, x, dy } => gradients(act)(of(x), of(dy), to),
        }
    }

    /// What an earlier register holds.
    fn register<'a>(&'a self, register: usize, [before, after]: [&'a [Slot]; 2]) -> &'a [f32] {
        if let Step::Input(input) = self.program.steps()[register]
            && let Operand::Slice(slice) = self.inputs[input]
        {
            return &slice[self.first..][..self.len];
        }
        let slot = self.program.slot(register);
        let slot = match slot.checked_sub(before.len()) {
            None => &before[slot],
            // The slot that is written lies between.
            Some(distance) => &after[distance - 1],
        };
        &slot[..self.len]
    }
}

/// Fills `to` with `row`, over and over, from its element `start` on.
fn repeat(row: &[f32], start: usize, to: &mut [f32]) {
    let (tail, head) = (&row[start..], &row[..start]);
    let mut filled = 0;
    for part in [tail, head] {
        let len = part.len().min(to.len() - filled);
        to[filled..filled + len].copy_from_slice(&part[..len]);
        filled += len;
    }
    // Twice as much each time: rows may be a few elements long.
    while filled < to.len() {
        let len = filled.min(to.len() - filled);
        to.copy_within(..len, filled);
        filled += len;
    }
}
