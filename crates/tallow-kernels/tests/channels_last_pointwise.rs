//! Programs of elementwise steps against the kernels for each step, called one after another, to the bit.

mod support;

use proptest::prelude::*;
use support::*;
use tallow_kernels::Error;
use tallow_kernels::activation::{self, Activation};
use tallow_kernels::channels_last::pointwise::{Operand, Program, Step, run};
use tallow_kernels::elementwise;

const ACTIVATIONS: [Activation; 8] = [
    Activation::Relu,
    Activation::Relu6,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::Hardswish,
];

/// The operand's elements, one for each of the output.
fn stretched(operand: Operand<'_>, out: &[f32]) -> Vec<f32> {
    match operand {
        Operand::Slice(slice) => slice.to_vec(),
        Operand::Scalar(value) => vec![value; out.len()],
        Operand::Repeated(row) => (0..out.len()).map(|i| row[i % row.len()]).collect(),
        Operand::Out => out.to_vec(),
    }
}

/// Every step by a kernel of its own.
fn one_by_one(steps: &[Step], inputs: &[Operand<'_>], out: &[f32]) -> Vec<f32> {
    let mut registers: Vec<Vec<f32>> = Vec::new();
    for &step in steps {
        let mut y = vec![f32::NAN; out.len()];
        let r = &registers;
        match step {
            Step::Input(input) => y = stretched(inputs[input], out),
            Step::Add(a, b) => elementwise::add(&r[a], &r[b], &mut y).unwrap(),
            Step::Sub(a, b) => elementwise::sub(&r[a], &r[b], &mut y).unwrap(),
            Step::Mul(a, b) => elementwise::mul(&r[a], &r[b], &mut y).unwrap(),
            Step::Div(a, b) => elementwise::div(&r[a], &r[b], &mut y).unwrap(),
            Step::AddScalar(x, value) => elementwise::add_scalar(&r[x], value, &mut y).unwrap(),
            Step::MulScalar(x, value) => elementwise::scale(&r[x], value, &mut y).unwrap(),
            Step::Activate(act, x) => activation::forward(act, &r[x], &mut y).unwrap(),
            Step::ActivateGradient { act, x, dy } => {
                activation::backward(act, &r[x], &r[dy], &mut y).unwrap();
            }
        }
        registers.push(y);
    }
    registers.pop().unwrap()
}

/// Equal bits, or both NaN: which NaN comes out of two depends on how the compiler orders them.
#[track_caller]
fn assert_same_bits(found: &[f32], expected: &[f32]) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
        assert!(same, "element {i}: found {found}, expected {expected}");
    }
}

fn check(steps: &[Step], inputs: &[Operand<'_>], len: usize) {
    let program = Program::new(steps).unwrap();
    let inputs = &inputs[..program.inputs()];
    let before = data(9, len, -2.0, 2.0);
    at_every_level(|_| {
        let mut out = before.clone();
        run(&program, inputs, &mut out).unwrap();
        assert_same_bits(&out, &one_by_one(steps, inputs, &before));
    });
}

/// A step at place `register`, from numbers that may be anything.
fn step(register: usize, [kind, a, b, act]: [usize; 4]) -> Step {
    if register == 0 || kind < 2 {
        return Step::Input(a % 6);
    }
    let (a, b, act) = (a % register, b % register, ACTIVATIONS[act % 8]);
    match kind {
        2 => Step::Add(a, b),
        3 => Step::Sub(a, b),
        4 => Step::Mul(a, b),
        5 => Step::Div(a, b),
        6 => Step::AddScalar(a, 0.3),
        7 => Step::MulScalar(a, -1.7),
        8 => Step::Activate(act, a),
        _ => Step::ActivateGradient { act, x: a, dy: b },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_program_has_the_bits_of_its_steps(
        kinds in prop::collection::vec([0..10usize, 0..100usize, 0..100usize, 0..8usize], 1..13),
        period in 1..40usize,
        rows in 0..60usize,
    ) {
        let steps: Vec<Step> = kinds.iter().enumerate().map(|(i, &kind)| step(i, kind)).collect();
        let len = period * rows;
        let (x, y) = (data(1, len, -4.0, 4.0), data(2, len, -1.0, 1.0));
        let row = data(3, period, -1.0, 2.0);
        let inputs = [
            Operand::Slice(&x),
            Operand::Repeated(&row),
            Operand::Scalar(0.7),
            Operand::Slice(&y),
            Operand::Out,
            Operand::Repeated(&row[..1]),
        ];
        check(&steps, &inputs, len);
    }
}

#[test]
fn long_rows_and_outputs_of_many_leaves() {
    let (x, row) = (data(1, 3 * 40_000, -4.0, 4.0), data(2, 40_000, -1.0, 1.0));
    let steps = [
        Step::Input(0),
        Step::Input(1),
        Step::Mul(0, 1),
        Step::Activate(Activation::Gelu, 2),
        Step::Sub(3, 0),
    ];
    for row in [&row[..], &row[..5], &row[..64], &row[..750]] {
        check(
            &steps,
            &[Operand::Slice(&x), Operand::Repeated(row)],
            x.len(),
        );
    }
    let program = Program::new(&steps).unwrap();
    same_bits_for_any_threads(|| {
        let mut out = vec![f32::NAN; x.len()];
        let inputs = [Operand::Slice(&x), Operand::Repeated(&row)];
        run(&program, &inputs, &mut out).unwrap();
        out
    });
}

#[test]
fn values_that_are_no_longer_needed_make_room() {
    // 40 results, of which two are in use at a time.
    let mut steps = vec![Step::Input(0)];
    steps.extend((0..40).map(|i| Step::AddScalar(i, 0.25)));
    let x = data(1, 100, -1.0, 1.0);
    check(&steps, &[Operand::Slice(&x)], 100);
    // 13 that are all used by the last steps.
    let mut steps: Vec<Step> = (0..13).map(|_| Step::Input(0)).collect();
    for i in 0..12 {
        steps.push(Step::Add(if i == 0 { 0 } else { 12 + i }, i + 1));
    }
    let error = Program::new(&steps).unwrap_err();
    assert!(error.to_string().contains("split the program"), "{error}");
}

#[test]
fn programs_and_operands_are_checked() {
    assert!(matches!(Program::new(&[]), Err(Error::Geometry { .. })));
    let early = Program::new(&[Step::Input(0), Step::Add(0, 1)]).unwrap_err();
    assert!(early.to_string().contains("register 1"), "{early}");
    let program = Program::new(&[Step::Input(0), Step::Input(1), Step::Add(0, 1)]).unwrap();
    assert_eq!(program.inputs(), 2);
    let mut out = [0.0; 6];
    let one = run(&program, &[Operand::Out], &mut out);
    assert!(matches!(one, Err(Error::Geometry { .. })));
    for row in [&[][..], &[0.0; 4]] {
        let uneven = run(&program, &[Operand::Out, Operand::Repeated(row)], &mut out);
        assert!(matches!(uneven, Err(Error::Geometry { .. })));
    }
    let short = run(
        &program,
        &[Operand::Out, Operand::Slice(&[0.0; 5])],
        &mut out,
    );
    assert!(matches!(short, Err(Error::Length { .. })));
}
