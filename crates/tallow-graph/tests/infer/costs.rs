//! What operations cost, and what they call their inputs.

use tallow_graph::op::*;
use tallow_graph::{Op, TensorType};

use crate::layers::conv;
use crate::types;

#[test]
fn costs_are_those_of_the_textbook() {
    // (operation, inputs, multiply-adds, floating-point operations)
    let rows: &[(Op, &str, u64, u64)] = &[
        (
            conv(1, 1, 1, 1),
            "f32[2, 3, 4, 4] f32[8, 3, 3, 3]",
            2 * 8 * 16 * 27,
            2 * 2 * 8 * 16 * 27,
        ),
        (
            conv(1, 1, 1, 1),
            "f32[2, 3, 4, 4] f32[8, 3, 3, 3] f32[8]",
            6912,
            2 * 6912 + 256,
        ),
        (
            conv(1, 1, 1, 4),
            "f32[1, 4, 4, 4] f32[4, 1, 3, 3]",
            4 * 16 * 9,
            2 * 4 * 16 * 9,
        ),
        (
            Op::Linear,
            "f32[8, 5] f32[3, 5] f32[3]",
            8 * 3 * 5,
            2 * 8 * 3 * 5 + 24,
        ),
        (
            Op::MatMul,
            "f32[2, 3, 4] f32[4, 5]",
            2 * 3 * 5 * 4,
            2 * 2 * 3 * 5 * 4,
        ),
        (
            Op::Attention(Attention { scale: 1.0 }),
            "f32[1, 2, 3, 4] f32[1, 2, 5, 4] f32[1, 2, 5, 6]",
            2 * 3 * 5 * (4 + 6),
            2 * 2 * 3 * 5 * (4 + 6) + 6 * 2 * 3 * 5,
        ),
        (Op::Add, "f32[2, 1] f32[3]", 0, 6),
        (Op::Relu, "f32[2, 3]", 0, 6),
        (Op::Reshape(Reshape { shape: vec![6] }), "f32[2, 3]", 0, 0),
        (
            Op::Mean(Mean {
                dims: vec![1],
                keep_dim: false,
            }),
            "f32[2, 3]",
            0,
            8,
        ),
        (
            Op::MaxPool2d(MaxPool2d {
                kernel: [2, 2],
                stride: [2, 2],
                padding: [0, 0],
                ceil_mode: false,
            }),
            "f32[1, 1, 4, 4]",
            0,
            16,
        ),
    ];
    for (op, inputs, macs, flops) in rows {
        let inputs = types(inputs);
        let output = op.infer(&inputs).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(op.macs(&inputs, &output), *macs, "multiply-adds of {op:?}");
        assert_eq!(op.flops(&inputs, &output), *flops, "operations of {op:?}");
    }
}

#[test]
fn huge_shapes_saturate() {
    let huge = TensorType::f32([usize::MAX, usize::MAX]);
    assert_eq!(huge.elements(), u64::MAX);
    assert_eq!(huge.bytes(), u64::MAX);
    let inputs = [huge.clone(), huge];
    let output = Op::MatMul.infer(&inputs).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(Op::MatMul.flops(&inputs, &output), u64::MAX);
}

#[test]
fn inputs_have_roles() {
    let batch_norm = Op::BatchNorm(BatchNorm {
        eps: 1e-5,
        momentum: 0.1,
        train: false,
    });
    let rows = [
        (conv(1, 0, 1, 1), 2, "bias"),
        (batch_norm, 3, "running_mean"),
        (Op::Concat(Concat { dim: 0 }), 7, "x"),
        (Op::Relu, 1, "extra"),
        (Op::MatMul, 1, "b"),
    ];
    for (op, index, role) in rows {
        assert_eq!(op.input_role(index), role, "{op:?}");
    }
}
