//! Every operation composed of candle operations whose gradients are right.
//!
//! This is the path for devices and element types without kernels of their own, and, in f64 on the
//! CPU, the reference that the kernels are checked against. It avoids each candle operation that cuts
//! or falsifies a gradient (pools, `softmax_last_dim`, `layer_norm`, `relu` at zero, upsampling).
//! Inputs are assumed checked; the public functions in the parent module see to that.

pub(super) mod activation;
pub(super) mod convolution;
pub(super) mod interpolation;
pub(super) mod loss;
pub(super) mod normalization;
pub(super) mod pooling;
pub(super) mod product;
pub(super) mod windows;
