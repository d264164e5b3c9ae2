//! Pooling of `[N, H, W, C]`: maximum and average over windows, and over adaptive bins, with the rules of
//! [`crate::pool`], whose geometries they take. There, `planes` is `N·C`; here `channels` is passed beside it.
//!
//! A pixel's channels are a row that vector loops run along. An output row is what threads share out, in the backward
//! passes an input row: each pixel gathers what it gets from the windows that it lies in, window after window, so that
//! nothing is written twice and sums have one order.

mod average;
mod max;
mod windows;

pub use average::{
    adaptive_avg_pool2d, adaptive_avg_pool2d_backward, avg_pool2d, avg_pool2d_backward,
};
pub use max::{
    Position, adaptive_max_pool2d, adaptive_max_pool2d_backward, adaptive_max_pool2d_positions,
    max_pool2d, max_pool2d_backward, max_pool2d_positions,
};
