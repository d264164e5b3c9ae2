#![doc = include_str!("../README.md")]

pub mod error;
pub mod parallel;
pub mod simd;

pub use error::{Error, Result};
