//! Steps, checked, with a place for each result.

use crate::activation::Activation;
use crate::error::{Error, Result};

/// One step of a [`Program`]: the value of one register. Registers are numbered as steps are, and a step may use those
/// before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// An operand of [`run`](super::run), by number.
    Input(usize),
    /// `a + b`.
    Add(usize, usize),
    /// `a - b`.
    Sub(usize, usize),
    /// `a b`.
    Mul(usize, usize),
    /// `a / b`.
    Div(usize, usize),
    /// A register plus a number.
    AddScalar(usize, f32),
    /// A register times a number.
    MulScalar(usize, f32),
    /// `act(x)`.
    Activate(Activation, usize),
    /// `dy act'(x)`.
    ActivateGradient {
        /// The activation.
        act: Activation,
        /// The register of its input.
        x: usize,
        /// The register of the gradient of its output.
        dy: usize,
    },
}

impl Step {
    /// The registers that it uses; one that uses a register alone names it twice.
    fn sources(self) -> Option<[usize; 2]> {
        match self {
            Self::Input(_) => None,
            Self::Add(a, b) | Self::Sub(a, b) | Self::Mul(a, b) | Self::Div(a, b) => Some([a, b]),
            Self::AddScalar(x, _) | Self::MulScalar(x, _) | Self::Activate(_, x) => Some([x, x]),
            Self::ActivateGradient { x, dy, .. } => Some([x, dy]),
        }
    }
}

/// Results that may be needed at a time.
pub(super) const SLOTS: usize = 12;

/// Steps that were found to be right; the last one gives the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    steps: Vec<Step>,
    /// Where each step's result is kept.
    slots: Vec<usize>,
    inputs: usize,
}

impl Program {
    /// A program of `steps`.
    ///
    /// # Errors
    /// [`Error::Geometry`] where there are no steps, a step uses itself or a later one, or more than 12 results are
    /// needed at a time.
    pub fn new(steps: &[Step]) -> Result<Self> {
        if steps.is_empty() {
            return problem("a program has to have at least one step".to_owned());
        }
        for (register, step) in steps.iter().enumerate() {
            let later = step
                .sources()
                .and_then(|sources| sources.into_iter().find(|&source| source >= register));
            if let Some(source) = later {
                return problem(format!(
                    "step {register} ({step:?}) uses register {source}, which has no value yet"
                ));
            }
        }
        let inputs = steps.iter().map(|step| match step {
            Step::Input(input) => input + 1,
            _ => 0,
        });
        Ok(Self {
            inputs: inputs.max().unwrap_or(0),
            slots: place(steps)?,
            steps: steps.to_vec(),
        })
    }

    /// How many operands [`run`](super::run) needs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Where a register's value is kept.
    pub(super) fn slot(&self, register: usize) -> usize {
        self.slots[register]
    }
}

/// Gives each step a slot that no value in use occupies; not that of a register that it uses, either.
fn place(steps: &[Step]) -> Result<Vec<usize>> {
    let mut last_use: Vec<usize> = (0..steps.len()).collect();
    for (register, step) in steps.iter().enumerate() {
        for source in step.sources().into_iter().flatten() {
            last_use[source] = register;
        }
    }
    let mut slots: Vec<usize> = Vec::with_capacity(steps.len());
    for register in 0..steps.len() {
        let taken = |slot: usize| {
            let mut earlier = slots.iter().zip(&last_use);
            earlier.any(|(&other, &until)| other == slot && until >= register)
        };
        let Some(slot) = (0..SLOTS).find(|&slot| !taken(slot)) else {
            return problem(format!(
                "step {register} is one too many: {SLOTS} earlier results are still needed; split \
                 the program"
            ));
        };
        slots.push(slot);
    }
    Ok(slots)
}

fn problem<T>(problem: String) -> Result<T> {
    Err(Error::Geometry {
        kernel: "pointwise program",
        problem,
    })
}
