//! Every function of `ops` writes exactly the node that it is named after.

use candle_core::{Device, Result, Tensor};
use tallow_tensor::ops::{
    self, BatchNormArgs, Conv2dConfig, CrossEntropyConfig, Interpolation, Pool2dConfig,
};
use tallow_tensor::{capture, convert};

use crate::{Outcome, operations};

/// Floats that neither repeat nor cancel.
fn floats(shape: &[usize]) -> Result<Tensor> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count)
        .map(|i| (i * 37 % 101) as f32 / 40.0 - 1.2)
        .collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// A call and the name of its node.
type Row = (&'static str, fn(&Tensor) -> Result<Tensor>);

/// Runs each call on `[2, 4, 6, 6]`.
#[test]
fn operations_on_images() -> Outcome {
    let rows: &[Row] = &[
        ("conv2d", |x| {
            let (w, b) = (floats(&[3, 4, 3, 3])?, floats(&[3])?);
            ops::conv2d(x, &w, Some(&b), &Conv2dConfig::default())
        }),
        ("batch_norm", |x| {
            let c = floats(&[4])?;
            let args = BatchNormArgs {
                weight: &c,
                bias: &c,
                running_mean: &c,
                running_var: &c.sqr()?,
                eps: 1e-5,
                momentum: 0.1,
            };
            ops::batch_norm(x, &args, false)
        }),
        ("group_norm", |x| {
            ops::group_norm(x, &floats(&[4])?, &floats(&[4])?, 2, 1e-5)
        }),
        ("max_pool2d", |x| ops::max_pool2d(x, &Pool2dConfig::new(2))),
        ("avg_pool2d", |x| {
            ops::avg_pool2d(x, &Pool2dConfig::new(2), true)
        }),
        ("adaptive_avg_pool2d", |x| {
            ops::adaptive_avg_pool2d(x, [1, 1])
        }),
        ("adaptive_max_pool2d", |x| {
            ops::adaptive_max_pool2d(x, [2, 3])
        }),
        ("interpolate", |x| {
            ops::interpolate(x, [9, 9], Interpolation::Nearest)
        }),
        ("attention", |x| ops::attention(x, x, x, 0.4)),
    ];
    check(rows, &[2, 4, 6, 6])
}

/// Runs each call on `[3, 5]`.
#[test]
fn operations_on_matrices() -> Outcome {
    let rows: &[Row] = &[
        ("linear", |x| {
            ops::linear(x, &floats(&[2, 5])?, Some(&floats(&[2])?))
        }),
        ("matmul", |x| ops::matmul(x, &floats(&[5, 4])?)),
        ("add", |x| ops::add(x, &floats(&[5])?)),
        ("sub", |x| ops::sub(x, &floats(&[3, 1])?)),
        ("mul", |x| ops::mul(x, x)),
        ("div", |x| ops::div(x, &floats(&[1])?)),
        ("add_scalar", |x| ops::add_scalar(x, 2.0)),
        ("mul_scalar", |x| ops::mul_scalar(x, 2.0)),
        ("relu", ops::relu),
        ("relu6", ops::relu6),
        ("gelu", ops::gelu),
        ("gelu", ops::gelu_tanh),
        ("silu", ops::silu),
        ("sigmoid", ops::sigmoid),
        ("tanh", ops::tanh),
        ("hardswish", ops::hardswish),
        ("layer_norm", |x| {
            ops::layer_norm(x, &floats(&[5])?, &floats(&[5])?, 1e-5)
        }),
        ("softmax", |x| ops::softmax(x, 1)),
        ("log_softmax", |x| ops::log_softmax(x, 0)),
        ("cross_entropy", |x| {
            let targets = Tensor::new(&[0u32, 4, 2], &Device::Cpu)?;
            ops::cross_entropy(x, &targets, &CrossEntropyConfig::default())
        }),
        ("embedding", |x| {
            let ids = Tensor::new(&[0u32, 2, 1], &Device::Cpu)?;
            ops::embedding(&ids, x)
        }),
        ("concat", |x| ops::concat(&[x, x, &floats(&[1, 5])?], 0)),
        ("reshape", |x| ops::reshape(x, &[5, 3])),
        ("reshape", |x| ops::flatten(x, 0)),
        ("permute", |x| ops::permute(x, &[1, 0])),
        ("permute", |x| ops::transpose(x, 0, 1)),
        ("slice", |x| ops::slice(x, 1, 1, 3)),
        ("expand", |x| ops::expand(x, &[2, 3, 5])),
        ("mean", |x| ops::mean(x, &[0], true)),
        ("sum", |x| ops::sum(x, &[0, 1], false)),
        ("dropout", |x| ops::dropout(x, 0.5, true)),
        ("drop_path", |x| ops::drop_path(x, 0.5, true)),
    ];
    check(rows, &[3, 5])
}

fn check(rows: &[Row], shape: &[usize]) -> Outcome {
    let example = floats(shape)?;
    for (name, call) in rows {
        let graph = capture(call, &example)?;
        assert_eq!(operations(&graph), [*name]);
        let output = graph.outputs.first().and_then(|&id| graph.node(id));
        let given = convert::tensor_type(&call(&example)?)?;
        assert_eq!(
            output.map(|node| node.output.clone()),
            Some(given),
            "{name}"
        );
    }
    Ok(())
}
