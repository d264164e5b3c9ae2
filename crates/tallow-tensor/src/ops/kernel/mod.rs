//! f32 on the CPU: candle operations made of `tallow-kernels`, with their backward rules.
//!
//! [`Kernel`] turns two closures over slices into a candle custom operation; the files beside it hold one family of
//! operations each. Inputs are contiguous f32 and not empty, and fit: the dispatch sees to that.

mod convolution;
mod product;
mod tape;

pub(super) use convolution::conv2d;
pub(super) use product::{linear, matmul};
pub(crate) use tape::Kernel;
