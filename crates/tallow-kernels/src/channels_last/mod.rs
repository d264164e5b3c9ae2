//! Kernels on `[N, H, W, C]` slices, channels last: what compiled steps run.
//!
//! With the channels of a pixel in a row, a convolution is a product of rows of the input, read where they lie,
//! with packed weights; a norm is a pass over the rows of a matrix `[N·H·W, C]`; and no operand is copied on the way.
//!
//! | module | holds |
//! |---|---|
//! | `micro` | the innermost loops |
//! | [`layout`] | from channels first to channels last and back |
//! | [`norm`] | batch norm in one pass each: statistics, scale and shift with activation and residual, gradients |
//! | [`pointwise`] | several elementwise steps in one pass |
//! | [`pool`] | maximum and average over windows and adaptive bins, with gradients |
//!
//! Results don't depend on the number of threads, to the bit, and nothing is allocated apart from what a
//! [`Workspace`](crate::workspace::Workspace) grows by.

pub mod layout;
#[allow(dead_code, reason = "the kernels that use it follow")]
mod micro;
pub mod norm;
pub mod pointwise;
pub mod pool;
