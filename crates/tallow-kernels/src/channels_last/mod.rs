//! Kernels on `[N, H, W, C]` slices, channels last: what compiled steps run.
//!
//! With the channels of a pixel in a row, a convolution is a product of rows of the input, read where they lie,
//! with packed weights; a norm is a pass over the rows of a matrix `[N·H·W, C]`; and no operand is copied on the way.
//!
//! | module | holds |
//! |---|---|
//! | [`conv`] | convolution and its gradients |
//! | [`winograd`] | 3x3 convolutions with a quarter of the multiplications |
//! | [`int8`] | convolutions of 8-bit weights and activations, exact |
//! | [`norm`] | batch norm in one pass each: statistics, scale and shift with activation and residual, gradients |
//! | [`pool`] | pools over windows and adaptive bins, and their gradients |
//! | [`layout`] | from channels first to channels last and back |
//! | [`pointwise`] | elementwise steps as one program |
//! | `micro`, `strip` | the innermost loops |
//!
//! Results don't depend on the number of threads, to the bit, and nothing is allocated apart from what a
//! [`Workspace`](crate::workspace::Workspace) grows by.

pub mod conv;
pub mod int8;
pub mod layout;
pub(crate) mod micro;
pub mod norm;
#[cfg(test)]
pub(crate) mod pairs;
pub mod pointwise;
pub mod pool;
mod strip;
pub mod winograd;
