#![doc = include_str!("../README.md")]

pub mod conv;
pub mod error;
pub mod gemm;
pub mod parallel;
mod shared;
pub mod simd;
pub mod workspace;

pub use error::{Error, Result};
