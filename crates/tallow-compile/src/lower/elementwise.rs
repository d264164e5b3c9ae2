//! Arithmetic, activations, random omission.

use tallow_graph::Op;
use tallow_graph::op::{DropPath, Dropout, FakeQuantize, Pointwise, PointwiseValue};
use tallow_kernels::activation::{self, Activation};
use tallow_kernels::broadcast::{self, Binary};
use tallow_kernels::channels_last::pointwise::{self, Operand, Program, Step};
use tallow_kernels::quantize::Grid;
use tallow_kernels::{bf16, dropout as random, elementwise};
use tallow_tensor::rng::{self, Purpose};

use super::{Lowered, Site};
use crate::Result;

pub(super) fn binary(site: &Site<'_>) -> Result<Lowered> {
    let op = match &site.node.op {
        Op::Add => Binary::Add,
        Op::Sub => Binary::Sub,
        Op::Mul => Binary::Mul,
        _ => Binary::Div,
    };
    let (a, b) = (site.shape(0).to_vec(), site.shape(1).to_vec());
    if a != b {
        return Ok(Lowered::new(move |io| {
            broadcast::binary(op, io.floats(0), &a, io.floats(1), &b, io.out)
        }));
    }
    let kernel = match op {
        Binary::Add => elementwise::add,
        Binary::Sub => elementwise::sub,
        Binary::Mul => elementwise::mul,
        Binary::Div => elementwise::div,
    };
    let commutes = matches!(op, Binary::Add);
    let lowered = Lowered::new(move |io| match io.taken {
        Some(taken) => elementwise::add_assign(io.out, io.floats(1 - taken)),
        None => kernel(io.floats(0), io.floats(1), io.out),
    });
    Ok(if commutes {
        lowered.in_place(&[0, 1])
    } else {
        lowered
    })
}

pub(super) fn add_scalar(value: f64) -> Lowered {
    Lowered::new(move |io| elementwise::add_scalar(io.floats(0), value as f32, io.out))
}

pub(super) fn mul_scalar(value: f64) -> Lowered {
    Lowered::new(move |io| {
        if io.taken.is_some() {
            elementwise::scale_assign(io.out, value as f32);
            return Ok(());
        }
        elementwise::scale(io.floats(0), value as f32, io.out)
    })
    .in_place(&[0])
}

/// The values that an operation rounds the elements of a tensor of this shape to.
pub(crate) fn grid(op: &FakeQuantize, shape: &[usize]) -> Grid {
    let inner = match op.scales.len() {
        1 => 1,
        _ => shape[op.axis + 1..].iter().product(),
    };
    Grid {
        scales: op.scales.clone(),
        inner,
        zero_point: op.zero_point,
        bounds: op.bounds,
    }
}

pub(super) fn fake_quantize(site: &Site<'_>, op: &FakeQuantize) -> Lowered {
    let grid = grid(op, site.shape(0));
    Lowered::new(move |io| grid.round(io.floats(0), io.out))
}

/// The activation that an operation is.
pub(super) fn activation_of(op: &Op) -> Option<Activation> {
    Some(match op {
        Op::Relu => Activation::Relu,
        Op::Relu6 => Activation::Relu6,
        Op::Gelu(gelu) if gelu.approximate => Activation::GeluTanh,
        Op::Gelu(_) => Activation::Gelu,
        Op::Silu => Activation::Silu,
        Op::Sigmoid => Activation::Sigmoid,
        Op::Tanh => Activation::Tanh,
        Op::Hardswish => Activation::Hardswish,
        _ => return None,
    })
}

pub(super) fn activation(site: &Site<'_>) -> Result<Lowered> {
    match activation_of(&site.node.op) {
        Some(activation) => Ok(Lowered::new(move |io| {
            activation::forward(activation, io.floats(0), io.out)
        })),
        None => Err(site.unsupported("has no kernel", "use another activation")),
    }
}

/// From dy and x; y in place of x where what the activation lets through is seen in it as well.
pub(super) fn activation_backward(activation: Activation) -> Lowered {
    Lowered::new(move |io| activation::backward(activation, io.floats(1), io.floats(0), io.out))
}

pub(super) fn round_bf16() -> Lowered {
    Lowered::new(|io| bf16::round(io.floats(0), io.out))
}

pub(super) fn dropout(op: &Dropout) -> Lowered {
    let Dropout { p, draw } = *op;
    Lowered::new(move |io| {
        let key = rng::draw_key(Purpose::Dropout, draw);
        random::dropout(key, p, io.floats(0), io.out)
    })
}

pub(super) fn drop_path(site: &Site<'_>, op: &DropPath) -> Lowered {
    let DropPath { p, draw } = *op;
    let samples = site.shape(0).first().copied().unwrap_or(1);
    let rest = site.output().elements() as usize / samples.max(1);
    Lowered::new(move |io| {
        let key = rng::draw_key(Purpose::DropPath, draw);
        random::drop_path(key, p, [samples, rest], io.floats(0), io.out)
    })
}

/// Several operations as one program; inputs are as long as the output, or a single number.
pub(super) fn joined(site: &Site<'_>, op: &Pointwise) -> Result<Lowered> {
    let program = |read: Read| {
        let steps = program_steps(op, site.inputs.len(), read).ok_or_else(|| {
            site.unsupported("has a step without a kernel", "switch `fuse_pointwise` off")
        })?;
        Program::new(&steps).map_err(|error| site.kernel_error(error))
    };
    // Where more inputs are read than a program can hold, each is read when it is used, perhaps several times.
    let program = program(Read::First).or_else(|_| program(Read::AtUse))?;
    let single = site.inputs.iter().map(|ty| ty.elements() == 1);
    let single: Vec<bool> = single.collect();
    Ok(Lowered::new(move |io| {
        let operand = |(input, &single): (usize, &bool)| {
            let values = io.floats(input);
            if single && io.out.len() != 1 {
                Operand::Scalar(values[0])
            } else {
                Operand::Slice(values)
            }
        };
        let operands: Vec<Operand<'_>> = single.iter().enumerate().map(operand).collect();
        pointwise::run(&program, &operands, io.out)
    }))
}

/// When a program reads its inputs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    /// All of them before anything else, once.
    First,
    /// Each before every step that uses it.
    AtUse,
}

/// The steps in the kernels' terms; none if there is one that has no kernel.
fn program_steps(op: &Pointwise, inputs: usize, read: Read) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    if read == Read::First {
        steps.extend((0..inputs).map(Step::Input));
    }
    let mut results: Vec<usize> = Vec::with_capacity(op.steps.len());
    for step in &op.steps {
        let mut registers = Vec::with_capacity(step.reads.len());
        for value in &step.reads {
            registers.push(match *value {
                // A result that isn't there yet is for the program to refuse.
                PointwiseValue::Step(step) => results.get(step).copied().unwrap_or(usize::MAX),
                PointwiseValue::Input(input) if read == Read::First => input,
                PointwiseValue::Input(input) => {
                    steps.push(Step::Input(input));
                    steps.len() - 1
                }
            });
        }
        results.push(steps.len());
        steps.push(program_step(&step.op, &registers)?);
    }
    Some(steps)
}

/// A step in the kernels' terms.
fn program_step(op: &Op, reads: &[usize]) -> Option<Step> {
    Some(match (op, reads) {
        (Op::Add, &[a, b]) => Step::Add(a, b),
        (Op::Sub, &[a, b]) => Step::Sub(a, b),
        (Op::Mul, &[a, b]) => Step::Mul(a, b),
        (Op::Div, &[a, b]) => Step::Div(a, b),
        (Op::AddScalar(op), &[x]) => Step::AddScalar(x, op.value as f32),
        (Op::MulScalar(op), &[x]) => Step::MulScalar(x, op.value as f32),
        (Op::Grad(grad), &[dy, x]) => Step::ActivateGradient {
            act: activation_of(&grad.of)?,
            x,
            dy,
        },
        (op, &[x]) => Step::Activate(activation_of(op)?, x),
        _ => return None,
    })
}
