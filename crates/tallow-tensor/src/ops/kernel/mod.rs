//! f32 on the CPU: candle operations made of `tallow-kernels`, with their backward rules.
//!
//! [`Kernel`] turns two closures over slices into a candle custom operation; the files beside it hold one family of
//! operations each. Inputs are contiguous f32 and not empty, and fit: the dispatch sees to that.

mod activation;
mod arithmetic;
mod convolution;
mod dropout;
mod embedding;
mod interpolation;
mod joint_batch_norm;
mod loss;
mod normalization;
mod pooling;
mod product;
mod reduction;
mod softmax;
mod tape;

pub(super) use activation::activation;
pub(super) use arithmetic::{add_scalar, binary, mul_scalar};
pub(super) use convolution::conv2d;
pub(super) use dropout::{drop_path, dropout};
pub(super) use embedding::embedding;
pub(super) use interpolation::interpolate;
pub(super) use joint_batch_norm::joint_batch_norm_train;
pub(super) use loss::{Labels, cross_entropy};
pub(super) use normalization::{batch_norm_eval, batch_norm_train, group_norm, layer_norm};
pub(super) use pooling::{adaptive_avg_pool2d, adaptive_max_pool2d, avg_pool2d, max_pool2d};
pub(super) use product::{linear, matmul};
pub(super) use reduction::sum;
pub(super) use softmax::{attention, log_softmax, softmax};
use tape::{Backward, Kernel, Outcome};
