//! Arithmetic, activations, reductions, moves of elements, and values that come from outside.

use tallow_graph::Op;
use tallow_graph::op::*;

use crate::{check, refuse, ty};

#[test]
fn elementwise() {
    check(&[
        (Op::Add, "f32[2, 3] f32[2, 3]", "f32[2, 3]"),
        (Op::Sub, "f32[2, 1, 4] f32[3, 1]", "f32[2, 3, 4]"),
        (Op::Mul, "f32[] f32[5]", "f32[5]"),
        (Op::Div, "f32[0, 3] f32[1, 3]", "f32[0, 3]"),
        (Op::Add, "u32[2] u32[2]", "u32[2]"),
        (Op::AddScalar(AddScalar { value: 1.5 }), "f32[2]", "f32[2]"),
        (Op::MulScalar(MulScalar { value: -1.0 }), "f64[]", "f64[]"),
        (
            Op::Gelu(Gelu { approximate: true }),
            "f32[2, 3]",
            "f32[2, 3]",
        ),
    ]);
    for op in [
        Op::Relu,
        Op::Relu6,
        Op::Silu,
        Op::Sigmoid,
        Op::Tanh,
        Op::Hardswish,
    ] {
        check(&[
            (op.clone(), "bf16[4, 5]", "bf16[4, 5]"),
            (op.clone(), "f32[]", "f32[]"),
        ]);
        refuse(&[(op, "u32[4]", &["u32", "convert x to f32"])]);
    }
    refuse(&[
        (
            Op::Add,
            "f32[2, 3] f32[2, 4]",
            &["don't broadcast", "equal or 1"],
        ),
        (Op::Mul, "f32[2] f64[2]", &["a is f32 but b is f64"]),
        (Op::Add, "f32[2]", &["1 inputs", "(a, b)"]),
        (Op::Relu, "f32[2] f32[2]", &["2 inputs", "(x)"]),
    ]);
}

#[test]
fn moving_elements() {
    let slice = |dim, start, end, step| {
        Op::Slice(Slice {
            dim,
            start,
            end,
            step,
        })
    };
    let permute = |dims: &[usize]| {
        Op::Permute(Permute {
            dims: dims.to_vec(),
        })
    };
    let reshape = |shape: &[usize]| {
        Op::Reshape(Reshape {
            shape: shape.to_vec(),
        })
    };
    let expand = |shape: &[usize]| {
        Op::Expand(Expand {
            shape: shape.to_vec(),
        })
    };
    let concat = |dim| Op::Concat(Concat { dim });
    check(&[
        (concat(1), "f32[2, 3] f32[2, 0] f32[2, 4]", "f32[2, 7]"),
        (concat(0), "f32[2, 3]", "f32[2, 3]"),
        (reshape(&[2, 12]), "f32[2, 3, 4]", "f32[2, 12]"),
        (reshape(&[]), "f32[1, 1]", "f32[]"),
        (permute(&[2, 0, 1]), "f32[2, 3, 4]", "f32[4, 2, 3]"),
        (permute(&[]), "f32[]", "f32[]"),
        (slice(1, 1, 3, 1), "f32[2, 5]", "f32[2, 2]"),
        (slice(1, 0, 5, 2), "f32[2, 5]", "f32[2, 3]"),
        (slice(0, 2, 2, 1), "f32[2, 5]", "f32[0, 5]"),
        (expand(&[8, 1, 64]), "f32[1, 1, 64]", "f32[8, 1, 64]"),
        (expand(&[2, 3]), "f32[3]", "f32[2, 3]"),
    ]);
    refuse(&[
        (
            concat(1),
            "f32[2, 3] f32[3, 3]",
            &["input 1 (f32[3, 3])", "dimension 1"],
        ),
        (concat(0), "f32[2, 3] f64[2, 3]", &["does not fit"]),
        (concat(2), "f32[2, 3]", &["no dimension 2"]),
        (concat(0), "", &["0 inputs", "(x, ...)"]),
        (
            reshape(&[5, 5]),
            "f32[2, 3, 4]",
            &["24 elements", "takes 25"],
        ),
        (permute(&[0, 0, 1]), "f32[2, 3, 4]", &["[0, 0, 1]", "once"]),
        (permute(&[0, 1]), "f32[2, 3, 4]", &["3 dimensions"]),
        (slice(1, 3, 6, 1), "f32[2, 5]", &["3..6", "size 5"]),
        (slice(1, 4, 3, 1), "f32[2, 5]", &["4..3"]),
        (slice(1, 0, 3, 0), "f32[2, 5]", &["step"]),
        (
            expand(&[3, 4]),
            "f32[2, 4]",
            &["can't be expanded to [3, 4]"],
        ),
        (expand(&[4]), "f32[1, 4]", &["can't be expanded"]),
        (expand(&[2, 1]), "f32[2, 4]", &["can't be expanded"]),
    ]);
}

#[test]
fn reductions() {
    let mean = |dims: &[usize], keep_dim| {
        Op::Mean(Mean {
            dims: dims.to_vec(),
            keep_dim,
        })
    };
    let sum = |dims: &[usize], keep_dim| {
        Op::Sum(Sum {
            dims: dims.to_vec(),
            keep_dim,
        })
    };
    check(&[
        (mean(&[2, 3], false), "f32[2, 3, 4, 5]", "f32[2, 3]"),
        (mean(&[2, 3], true), "f32[2, 3, 4, 5]", "f32[2, 3, 1, 1]"),
        (sum(&[1, 0], false), "f32[2, 3]", "f32[]"),
    ]);
    refuse(&[
        (mean(&[], false), "f32[2, 3]", &["no dimension is named"]),
        (
            sum(&[1, 1], false),
            "f32[2, 3]",
            &["dimension 1 is named twice"],
        ),
        (sum(&[2], false), "f32[2, 3]", &["no dimension 2"]),
        (sum(&[0], false), "u32[2, 3]", &["u32"]),
    ]);
}

#[test]
fn sources() {
    let literal = Literal::from_f32([2], &[1.0, 2.0]);
    let constant = |value: Literal| Op::Constant(Constant { value });
    check(&[
        (constant(literal.clone()), "", "f32[2]"),
        (
            Op::Input(Input {
                name: "x".into(),
                ty: ty("u8[3]"),
            }),
            "",
            "u8[3]",
        ),
    ]);
    let short = Literal {
        ty: ty("f32[3]"),
        ..literal
    };
    refuse(&[(constant(short), "", &["takes 12 bytes", "holds 8"])]);
}
