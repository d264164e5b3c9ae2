//! The operations that models are written with: eager functions on candle tensors with right gradients.
//!
//! A model that calls only these needs no raw candle operation, and so can be captured whole. Every call
//!
//! 1. checks its inputs against the operation's shape rule, so that an eager error reads as a graph error
//!    does, with the path of the module that is running;
//! 2. computes: with `tallow-kernels` for f32 on the CPU, composed of candle operations elsewhere;
//! 3. writes a node into the graph if a recorder is active.
//!
//! Gradients come from candle's own [`backward`](candle_core::Tensor::backward). What candle's operations get
//! wrong (pools, `softmax_last_dim`, `layer_norm`, `relu` at zero, upsampling) is not used.
//!
//! Shapes are written as in PyTorch: `[N, C, H, W]` is batch, channels, height, width. Functions are named after
//! PyTorch's functional forms. All return [`candle_core::Result`], so that a model is plain candle code.

mod activation;
mod arithmetic;
mod attention;
mod convolution;
mod dispatch;
mod dropout;
mod embedding;
mod interpolation;
mod kernel;
mod loss;
mod normalization;
mod pooling;
mod portable;
mod product;
mod reduction;
mod shape;
mod softmax;

pub use activation::{gelu, gelu_tanh, hardswish, relu, relu6, sigmoid, silu, tanh};
pub use arithmetic::{add, add_scalar, div, mul, mul_scalar, sub};
pub use attention::attention;
pub use convolution::{Conv2dConfig, conv2d};
pub use dropout::{drop_path, dropout};
pub use embedding::embedding;
pub use interpolation::{Interpolation, interpolate};
pub use loss::{CrossEntropyConfig, cross_entropy};
pub use normalization::{BatchNormArgs, batch_norm, group_norm, layer_norm};
pub use pooling::{Pool2dConfig, adaptive_avg_pool2d, adaptive_max_pool2d, avg_pool2d, max_pool2d};
pub use product::{linear, matmul};
pub use reduction::{mean, sum};
pub use shape::{concat, expand, flatten, permute, reshape, slice, transpose};
pub use softmax::{log_softmax, softmax};
