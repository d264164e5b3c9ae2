#![doc = include_str!("../README.md")]

pub mod activation;
pub mod broadcast;
mod channels;
pub mod conv;
pub mod elementwise;
pub mod error;
pub mod gemm;
mod lanes;
mod math;
pub mod norm;
pub mod parallel;
pub mod reduce;
pub mod shape;
mod shared;
pub mod simd;
pub mod workspace;

pub use error::{Error, Result};
pub use shape::ChannelShape;
