//! Layers: convolution, products, attention, normalisation, pooling, resizing, losses, dropout.

use tallow_graph::Op;
use tallow_graph::op::*;

use crate::{check, refuse};

pub(crate) fn conv(stride: usize, padding: usize, dilation: usize, groups: usize) -> Op {
    Op::Conv2d(Conv2d {
        stride: [stride; 2],
        padding: [padding; 2],
        dilation: [dilation; 2],
        groups,
    })
}

#[test]
fn convolution() {
    let uneven = Op::Conv2d(Conv2d {
        stride: [2, 1],
        padding: [3, 0],
        dilation: [1, 2],
        groups: 1,
    });
    check(&[
        (
            conv(1, 1, 1, 1),
            "f32[2, 3, 32, 32] f32[16, 3, 3, 3] f32[16]",
            "f32[2, 16, 32, 32]",
        ),
        (
            conv(2, 3, 1, 1),
            "f32[1, 3, 224, 224] f32[64, 3, 7, 7]",
            "f32[1, 64, 112, 112]",
        ),
        (
            conv(1, 0, 2, 1),
            "f64[1, 1, 5, 5] f64[1, 1, 3, 3]",
            "f64[1, 1, 1, 1]",
        ),
        (
            conv(1, 1, 1, 8),
            "f32[4, 8, 7, 9] f32[16, 1, 3, 3]",
            "f32[4, 16, 7, 9]",
        ),
        (
            conv(2, 0, 1, 1),
            "f32[0, 3, 8, 8] f32[4, 3, 1, 1]",
            "f32[0, 4, 4, 4]",
        ),
        (
            uneven,
            "f32[1, 2, 10, 10] f32[3, 2, 7, 3]",
            "f32[1, 3, 5, 6]",
        ),
    ]);
    refuse(&[
        (
            conv(1, 0, 1, 1),
            "f32[1, 4, 8, 8] f32[16, 3, 3, 3]",
            &["x has 4 channels", "for 3", "[16, 4, 3, 3]"],
        ),
        (
            conv(1, 0, 1, 3),
            "f32[1, 4, 8, 8] f32[6, 1, 3, 3]",
            &["3 groups", "4 channels"],
        ),
        (
            conv(1, 0, 1, 0),
            "f32[1, 4, 8, 8] f32[6, 4, 3, 3]",
            &["groups", "at least 1"],
        ),
        (
            conv(0, 0, 1, 1),
            "f32[1, 4, 8, 8] f32[6, 4, 3, 3]",
            &["stride is [0, 0]"],
        ),
        (
            conv(1, 0, 0, 1),
            "f32[1, 4, 8, 8] f32[6, 4, 3, 3]",
            &["dilation is [0, 0]"],
        ),
        (
            conv(1, 0, 1, 1),
            "f32[1, 4, 8, 8] f32[6, 4, 0, 3]",
            &["kernel is [0, 3]"],
        ),
        (
            conv(1, 0, 1, 1),
            "f32[1, 4, 2, 8] f32[6, 4, 3, 3]",
            &["height 2", "smaller kernel"],
        ),
        (
            conv(1, 0, 4, 1),
            "f32[1, 4, 9, 8] f32[6, 4, 3, 3]",
            &["width 8", "dilation 4"],
        ),
        (
            conv(1, 0, 1, 1),
            "f32[4, 8, 8] f32[6, 4, 3, 3]",
            &["3 dimensions", "[N, C, H, W]"],
        ),
        (
            conv(1, 0, 1, 1),
            "f32[1, 4, 8, 8] f32[6, 36]",
            &["weight has 2 dimensions"],
        ),
        (
            conv(1, 0, 1, 1),
            "f32[1, 4, 8, 8] f32[6, 4, 3, 3] f32[4]",
            &["bias is [4]", "[6]"],
        ),
        (
            conv(1, 0, 1, 1),
            "f32[1, 4, 8, 8] f64[6, 4, 3, 3]",
            &["x is f32", "weight is f64"],
        ),
        (
            conv(1, 0, 1, 1),
            "u8[1, 4, 8, 8] u8[6, 4, 3, 3]",
            &["u8", "convert x to f32"],
        ),
        (
            conv(1, 0, 1, 1),
            "f32[1, 4, 8, 8]",
            &["1 inputs", "(x, weight, [bias])"],
        ),
        (
            conv(usize::MAX, 1, usize::MAX, 1),
            "f32[1, 4, 8, 8] f32[6, 4, 3, 3]",
            &["does not fit"],
        ),
    ]);
}

#[test]
fn products() {
    check(&[
        (Op::Linear, "f32[8, 512] f32[10, 512] f32[10]", "f32[8, 10]"),
        (Op::Linear, "f32[2, 197, 64] f32[32, 64]", "f32[2, 197, 32]"),
        (Op::Linear, "f32[64] f32[32, 64]", "f32[32]"),
        (Op::MatMul, "f32[3, 4] f32[4, 5]", "f32[3, 5]"),
        (
            Op::MatMul,
            "f32[7, 1, 3, 4] f32[6, 4, 5]",
            "f32[7, 6, 3, 5]",
        ),
        (Op::Embedding, "u32[2, 9] f32[100, 16]", "f32[2, 9, 16]"),
        (Op::Embedding, "i64[] f64[100, 16]", "f64[16]"),
    ]);
    refuse(&[
        (
            Op::Linear,
            "f32[8, 512] f32[10, 256]",
            &["512 features", "for 256"],
        ),
        (
            Op::Linear,
            "f32[8, 512, 1, 1] f32[10, 512]",
            &["flatten x from dimension 1"],
        ),
        (Op::Linear, "f32[] f32[10, 512]", &["scalar"]),
        (
            Op::Linear,
            "f32[8, 512] f32[512]",
            &["weight has 1 dimensions", "[O, I]"],
        ),
        (
            Op::Linear,
            "f32[8, 512] f32[10, 512] f32[512]",
            &["bias is [512]"],
        ),
        (
            Op::MatMul,
            "f32[3, 4] f32[5, 4]",
            &["4 columns", "5 rows", "transpose"],
        ),
        (
            Op::MatMul,
            "f32[2, 3, 4] f32[3, 4, 5]",
            &["[2]", "[3]", "broadcast"],
        ),
        (
            Op::MatMul,
            "f32[4] f32[4, 5]",
            &["two dimensions", "[1, K]"],
        ),
        (
            Op::Embedding,
            "f32[2] f32[100, 16]",
            &["ids holds f32", "u32"],
        ),
        (
            Op::Embedding,
            "u32[2] f32[100]",
            &["weight has 1 dimensions", "[V, D]"],
        ),
    ]);
}

#[test]
fn attention() {
    let attention = || Op::Attention(Attention { scale: 0.125 });
    check(&[(
        attention(),
        "f32[2, 3, 197, 64] f32[2, 3, 50, 64] f32[2, 3, 50, 32]",
        "f32[2, 3, 197, 32]",
    )]);
    refuse(&[
        (
            attention(),
            "f32[2, 3, 4, 8] f32[2, 1, 4, 8] f32[2, 3, 4, 8]",
            &["batch and heads"],
        ),
        (
            attention(),
            "f32[2, 3, 4, 8] f32[2, 3, 4, 6] f32[2, 3, 4, 8]",
            &["q is 8 wide, k is 6"],
        ),
        (
            attention(),
            "f32[2, 3, 4, 8] f32[2, 3, 5, 8] f32[2, 3, 4, 8]",
            &["k has length 5, v has 4"],
        ),
        (
            attention(),
            "f32[2, 3, 4, 8] f32[2, 3, 0, 8] f32[2, 3, 0, 8]",
            &["nothing to attend to"],
        ),
        (
            attention(),
            "f32[3, 4, 8] f32[3, 4, 8] f32[3, 4, 8]",
            &["q has 3 dimensions", "heads"],
        ),
    ]);
}

#[test]
fn normalisation() {
    let batch = |train| {
        Op::BatchNorm(BatchNorm {
            eps: 1e-5,
            momentum: 0.1,
            train,
        })
    };
    let layer = || Op::LayerNorm(LayerNorm { eps: 1e-6 });
    let group = |groups| Op::GroupNorm(GroupNorm { groups, eps: 1e-5 });
    check(&[
        (
            batch(true),
            "f32[2, 3, 4, 4] f32[3] f32[3] f32[3] f32[3]",
            "f32[2, 3, 4, 4]",
        ),
        (
            batch(true),
            "f32[1, 3, 2, 1] f32[3] f32[3] f32[3] f32[3]",
            "f32[1, 3, 2, 1]",
        ),
        (
            batch(false),
            "f32[1, 3] f32[3] f32[3] f32[3] f32[3]",
            "f32[1, 3]",
        ),
        (
            layer(),
            "f32[2, 197, 64] f32[64] f32[64]",
            "f32[2, 197, 64]",
        ),
        (layer(), "f32[2, 3, 4] f32[3, 4] f32[3, 4]", "f32[2, 3, 4]"),
        (group(4), "f32[2, 8, 5] f32[8] f32[8]", "f32[2, 8, 5]"),
    ]);
    refuse(&[
        (
            batch(true),
            "f32[1, 3] f32[3] f32[3] f32[3] f32[3]",
            &["no variance", "drop the last partial batch"],
        ),
        (
            batch(true),
            "f32[1, 3, 1, 1] f32[3] f32[3] f32[3] f32[3]",
            &["no variance"],
        ),
        (
            batch(false),
            "f32[2, 3, 4, 4] f32[3] f32[3] f32[4] f32[3]",
            &["running_mean is [4]", "[3]"],
        ),
        (
            batch(false),
            "f32[3] f32[3] f32[3] f32[3] f32[3]",
            &["fewer than 2", "[N, C, ...]"],
        ),
        (
            layer(),
            "f32[2, 64] f32[32] f32[32]",
            &["not those of weight, [32]"],
        ),
        (layer(), "f32[2, 64] f32[] f32[]", &["last dimensions"]),
        (layer(), "f32[2, 64] f32[64] f32[32]", &["bias is [32]"]),
        (
            group(3),
            "f32[2, 8, 5] f32[8] f32[8]",
            &["3 groups", "8 channels"],
        ),
        (group(0), "f32[2, 8, 5] f32[8] f32[8]", &["groups is [0]"]),
    ]);
}

#[test]
fn pooling() {
    let max = |kernel, stride, padding, ceil_mode| {
        Op::MaxPool2d(MaxPool2d {
            kernel: [kernel; 2],
            stride: [stride; 2],
            padding: [padding; 2],
            ceil_mode,
        })
    };
    let avg = |kernel, stride, padding, ceil_mode| {
        Op::AvgPool2d(AvgPool2d {
            kernel: [kernel; 2],
            stride: [stride; 2],
            padding: [padding; 2],
            ceil_mode,
            count_include_pad: true,
        })
    };
    let adaptive = |out| Op::AdaptiveAvgPool2d(AdaptiveAvgPool2d { out });
    // Sizes with ceil_mode are those that torch 2.x gives.
    check(&[
        (
            max(3, 2, 1, false),
            "f32[1, 64, 112, 112]",
            "f32[1, 64, 56, 56]",
        ),
        (max(3, 2, 0, false), "f32[1, 1, 6, 6]", "f32[1, 1, 2, 2]"),
        (max(3, 2, 0, true), "f32[1, 1, 6, 6]", "f32[1, 1, 3, 3]"),
        (max(2, 2, 1, true), "f32[1, 1, 5, 5]", "f32[1, 1, 3, 3]"),
        (max(2, 2, 0, true), "f32[1, 1, 1, 1]", "f32[1, 1, 1, 1]"),
        (avg(2, 2, 0, false), "f32[2, 3, 7, 8]", "f32[2, 3, 3, 4]"),
        (avg(3, 3, 1, true), "f32[1, 1, 4, 7]", "f32[1, 1, 2, 3]"),
        (adaptive([1, 1]), "f32[2, 512, 7, 7]", "f32[2, 512, 1, 1]"),
        (adaptive([7, 9]), "f32[2, 5, 3, 4]", "f32[2, 5, 7, 9]"),
        (
            Op::AdaptiveMaxPool2d(AdaptiveMaxPool2d { out: [2, 3] }),
            "f32[1, 1, 5, 5]",
            "f32[1, 1, 2, 3]",
        ),
    ]);
    refuse(&[
        (
            max(3, 2, 2, false),
            "f32[1, 1, 6, 6]",
            &["padding 2", "half the kernel 3"],
        ),
        (
            avg(0, 1, 0, false),
            "f32[1, 1, 6, 6]",
            &["kernel is [0, 0]"],
        ),
        (
            avg(2, 0, 0, false),
            "f32[1, 1, 6, 6]",
            &["stride is [0, 0]"],
        ),
        (max(7, 1, 0, false), "f32[1, 1, 6, 9]", &["height 6"]),
        (max(2, 2, 0, false), "f32[6, 6]", &["2 dimensions"]),
        (
            adaptive([0, 1]),
            "f32[2, 3, 7, 7]",
            &["output size is [0, 1]"],
        ),
        (adaptive([1, 1]), "f32[2, 3, 0, 7]", &["no pixels"]),
    ]);
}

#[test]
fn resizing() {
    let to = |size, mode| Op::Interpolate(Interpolate { size, mode });
    let bilinear = Interpolation::Bilinear {
        align_corners: false,
    };
    check(&[
        (
            to([14, 7], Interpolation::Nearest),
            "f32[1, 3, 7, 7]",
            "f32[1, 3, 14, 7]",
        ),
        (to([5, 5], bilinear), "f64[1, 3, 9, 9]", "f64[1, 3, 5, 5]"),
    ]);
    refuse(&[
        (to([0, 5], bilinear), "f32[1, 3, 9, 9]", &["output size"]),
        (to([5, 5], bilinear), "f32[1, 3, 9, 0]", &["no pixels"]),
    ]);
}

#[test]
fn softmax_and_losses() {
    let loss = |label_smoothing, ignore_index| {
        Op::CrossEntropy(CrossEntropy {
            label_smoothing,
            ignore_index,
        })
    };
    check(&[
        (Op::Softmax(Softmax { dim: 1 }), "f32[2, 10]", "f32[2, 10]"),
        (Op::LogSoftmax(LogSoftmax { dim: 0 }), "f32[7]", "f32[7]"),
        (loss(0.1, Some(-100)), "f32[8, 10] u32[8]", "f32[]"),
        (loss(0.0, None), "f64[8, 10] f64[8, 10]", "f64[]"),
        (loss(0.0, None), "f32[8, 10] i64[8]", "f32[]"),
    ]);
    refuse(&[
        (
            Op::Softmax(Softmax { dim: 2 }),
            "f32[2, 10]",
            &["no dimension 2", "0..=1"],
        ),
        (
            Op::Softmax(Softmax { dim: 0 }),
            "f32[]",
            &["scalar has none"],
        ),
        (
            loss(0.0, None),
            "f32[8, 10] u32[7]",
            &["targets is [7]", "[8]"],
        ),
        (
            loss(0.0, None),
            "f32[8, 10] f32[8]",
            &["probabilities", "class indices [8]"],
        ),
        (
            loss(0.0, Some(0)),
            "f32[8, 10] f32[8, 10]",
            &["ignore_index"],
        ),
        (
            loss(1.5, None),
            "f32[8, 10] u32[8]",
            &["label smoothing is 1.5"],
        ),
        (
            loss(0.0, None),
            "f32[8, 10] f64[8, 10]",
            &["logits is f32 but targets is f64"],
        ),
        (
            loss(0.0, None),
            "f32[8, 10, 4] u32[8]",
            &["3 dimensions", "[N, C]"],
        ),
        (
            loss(0.0, None),
            "f32[0, 10] u32[0]",
            &["mean over no samples"],
        ),
    ]);
}

#[test]
fn omission() {
    let dropout = |p| Op::Dropout(Dropout { p, draw: 0 });
    let path = |p| Op::DropPath(DropPath { p, draw: 3 });
    check(&[
        (dropout(0.0), "f32[]", "f32[]"),
        (path(0.9), "f32[2, 3]", "f32[2, 3]"),
    ]);
    refuse(&[
        (dropout(1.0), "f32[2]", &["probability is 1", "p < 1"]),
        (dropout(-0.1), "f32[2]", &["-0.1"]),
        (dropout(f64::NAN), "f32[2]", &["NaN"]),
        (path(0.5), "f32[]", &["no dimension 0"]),
    ]);
}
