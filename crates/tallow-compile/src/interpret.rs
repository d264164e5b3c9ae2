//! Runs a graph eagerly, operation by operation: the reference that compiled plans are compared with, and what folds
//! constants.

use std::collections::HashMap;

use candle_core::{Device, Tensor};
use tallow_graph::op::{FakeQuantize, Interpolate, Literal};
use tallow_graph::{Graph, Op, TensorType};
use tallow_tensor::convert;
use tallow_tensor::ops::{self, BatchNormArgs, Pool2dConfig};

use crate::lower::elementwise;
use crate::{Error, Result};

/// The outputs of `graph` for these inputs, in the order of [`Graph::inputs`], with parameters by name.
///
/// Operations that only the compiler makes are refused. Batch normalisation in training moves its running statistics.
///
/// # Errors
/// A missing input or parameter, an operation that only the compiler makes, and what operations fail with.
pub fn interpret(
    graph: &Graph,
    inputs: &[Tensor],
    params: &HashMap<String, Tensor>,
) -> Result<Vec<Tensor>> {
    let mut values: Vec<Tensor> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let value = match &node.op {
            Op::Input(input) => {
                let place = graph.inputs.iter().position(|id| *id == node.id);
                let given = place.and_then(|place| inputs.get(place));
                given
                    .cloned()
                    .ok_or_else(|| missing("input", &input.name))?
            }
            Op::Param(param) => {
                let given = params.get(&param.name);
                given
                    .cloned()
                    .ok_or_else(|| missing("parameter", &param.name))?
            }
            Op::Constant(constant) => tensor(&constant.value)?,
            op => {
                let inputs: Vec<Tensor> =
                    node.inputs.iter().map(|id| values[id.0].clone()).collect();
                evaluate(op, &inputs)?
            }
        };
        values.push(value);
    }
    Ok(graph
        .outputs
        .iter()
        .map(|id| values[id.0].clone())
        .collect())
}

fn missing(kind: &str, name: &str) -> Error {
    Error::Unsupported {
        operation: format!("{kind} `{name}`"),
        module: String::new(),
        problem: "was not given".into(),
        remedy: "give a tensor for every input and parameter of the graph",
    }
}

/// One operation on its inputs.
pub(crate) fn evaluate(op: &Op, inputs: &[Tensor]) -> Result<Tensor> {
    let x = inputs.first().ok_or_else(|| missing("input", "x"))?;
    let bias = inputs.get(2);
    Ok(match op {
        Op::Conv2d(config) => ops::conv2d(x, &inputs[1], bias, config)?,
        Op::Linear => ops::linear(x, &inputs[1], bias)?,
        Op::MatMul => ops::matmul(x, &inputs[1])?,
        Op::Embedding => ops::embedding(x, &inputs[1])?,
        Op::Attention(op) => ops::attention(x, &inputs[1], &inputs[2], op.scale)?,
        Op::Add => ops::add(x, &inputs[1])?,
        Op::Sub => ops::sub(x, &inputs[1])?,
        Op::Mul => ops::mul(x, &inputs[1])?,
        Op::Div => ops::div(x, &inputs[1])?,
        Op::AddScalar(op) => ops::add_scalar(x, op.value)?,
        Op::MulScalar(op) => ops::mul_scalar(x, op.value)?,
        Op::Relu => ops::relu(x)?,
        Op::Relu6 => ops::relu6(x)?,
        Op::Gelu(op) if op.approximate => ops::gelu_tanh(x)?,
        Op::Gelu(_) => ops::gelu(x)?,
        Op::Silu => ops::silu(x)?,
        Op::Sigmoid => ops::sigmoid(x)?,
        Op::Tanh => ops::tanh(x)?,
        Op::Hardswish => ops::hardswish(x)?,
        Op::BatchNorm(op) => {
            let args = BatchNormArgs {
                weight: &inputs[1],
                bias: &inputs[2],
                running_mean: &inputs[3],
                running_var: &inputs[4],
                eps: op.eps,
                momentum: op.momentum,
            };
            ops::batch_norm(x, &args, op.train)?
        }
        Op::LayerNorm(op) => ops::layer_norm(x, &inputs[1], &inputs[2], op.eps)?,
        Op::GroupNorm(op) => ops::group_norm(x, &inputs[1], &inputs[2], op.groups, op.eps)?,
        Op::MaxPool2d(op) => ops::max_pool2d(
            x,
            &pool_config(op.kernel, op.stride, op.padding, op.ceil_mode),
        )?,
        Op::AvgPool2d(op) => ops::avg_pool2d(
            x,
            &pool_config(op.kernel, op.stride, op.padding, op.ceil_mode),
            op.count_include_pad,
        )?,
        Op::AdaptiveAvgPool2d(op) => ops::adaptive_avg_pool2d(x, op.out)?,
        Op::AdaptiveMaxPool2d(op) => ops::adaptive_max_pool2d(x, op.out)?,
        Op::Interpolate(Interpolate { size, mode }) => ops::interpolate(x, *size, *mode)?,
        Op::Softmax(op) => ops::softmax(x, op.dim)?,
        Op::LogSoftmax(op) => ops::log_softmax(x, op.dim)?,
        Op::CrossEntropy(op) => ops::cross_entropy(x, &inputs[1], op)?,
        Op::Dropout(op) => ops::dropout(x, op.p, true)?,
        Op::DropPath(op) => ops::drop_path(x, op.p, true)?,
        Op::Concat(op) => ops::concat(&inputs.iter().collect::<Vec<_>>(), op.dim)?,
        Op::Reshape(op) => ops::reshape(x, &op.shape)?,
        Op::Permute(op) => ops::permute(x, &op.dims)?,
        Op::Slice(op) if op.step == 1 => ops::slice(x, op.dim, op.start, op.end)?,
        Op::Expand(op) => ops::expand(x, &op.shape)?,
        Op::FakeQuantize(op) => fake_quantize(x, op)?,
        Op::Mean(op) => ops::mean(x, &op.dims, op.keep_dim)?,
        Op::Sum(op) => ops::sum(x, &op.dims, op.keep_dim)?,
        Op::Input(_)
        | Op::Param(_)
        | Op::Constant(_)
        | Op::Slice(_)
        | Op::RoundBf16
        | Op::Opaque(_)
        | Op::Grad(_)
        | Op::BatchStats(_)
        | Op::Normalize(_)
        | Op::NormalizeSums(_)
        | Op::NormalizeBackward(_)
        | Op::RunningStat(_)
        | Op::FoldBatchNorm(_)
        | Op::FusedConv2d(_)
        | Op::Pointwise(_)
        | Op::QuantizeToWords(_)
        | Op::Int8Conv2d(_)
        | Op::Relayout(_) => {
            return Err(Error::Unsupported {
                operation: op.name().to_string(),
                module: String::new(),
                problem: "has no eager form".into(),
                remedy: "interpret the captured graph, before any pass",
            });
        }
    })
}

fn fake_quantize(x: &Tensor, op: &FakeQuantize) -> Result<Tensor> {
    let values = x.flatten_all()?.to_vec1::<f32>()?;
    let mut rounded = vec![0.0; values.len()];
    let grid = elementwise::grid(op, x.dims());
    grid.round(&values, &mut rounded)
        .map_err(|source| Error::Kernel {
            operation: "fake_quantize",
            module: String::new(),
            source: Box::new(source),
        })?;
    Ok(Tensor::from_vec(rounded, x.shape(), x.device())?)
}

fn pool_config(
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    ceil_mode: bool,
) -> Pool2dConfig {
    Pool2dConfig {
        kernel,
        stride,
        padding,
        ceil_mode,
    }
}

/// A literal as a tensor on the CPU.
pub(crate) fn tensor(literal: &Literal) -> Result<Tensor> {
    let dtype = convert::candle_dtype(literal.ty.dtype);
    Ok(Tensor::from_raw_buffer(
        &literal.bytes,
        dtype,
        &literal.ty.shape,
        &Device::Cpu,
    )?)
}

/// A tensor of 32-bit floats as a literal.
pub(crate) fn literal(tensor: &Tensor, ty: TensorType) -> Result<Literal> {
    let values = tensor.flatten_all()?.to_vec1::<f32>()?;
    Ok(Literal::from_f32(ty.shape, &values))
}
