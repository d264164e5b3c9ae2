#![doc = include_str!("../README.md")]

pub mod activation;
pub mod bf16;
pub mod broadcast;
pub mod buffer;
mod channels;
pub mod channels_last;
pub mod conv;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod error;
pub mod gemm;
pub mod interpolate;
mod lanes;
pub mod loss;
mod math;
pub mod matrix;
pub mod norm;
pub mod optimizer;
pub mod parallel;
pub mod pool;
pub mod quantize;
pub mod reduce;
mod registers;
pub mod rng;
pub mod shape;
mod shared;
pub mod simd;
pub mod softmax;
pub mod strided;
pub mod workspace;

pub use error::{Error, Result};
pub use shape::ChannelShape;
