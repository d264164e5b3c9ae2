#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | holds |
//! |---|---|
//! | [`freeze`](mod@freeze) | from a model to a [`Program`], and the proof that it is in inference |
//! | [`program`] | [`Program`] and, compiled, [`Runner`] |
//! | `file`, `weights`, `numbers`, `mapping` | the program's file, read with suspicion; where its weights lie |
//! | [`quantize`](mod@quantize) | programs that compute with 8-bit numbers |
//! | `rules` | what a program may consist of |
//! | [`onnx`] | ONNX files, written and read |
//! | [`manifest`], [`verify`](mod@verify), [`deliver`](mod@deliver) | a delivery: what it says, its verification, making one |
//! | `latency`, `checksum` | what a manifest states and verification repeats |
//! | [`error`] | what can go wrong |
//!
//! This crate knows no layers, and loads a program without the model's Rust type.

mod checksum;
pub mod deliver;
pub mod error;
mod file;
pub mod freeze;
mod latency;
pub mod manifest;
mod mapping;
mod numbers;
pub mod onnx;
pub mod program;
pub mod quantize;
mod rules;
pub mod verify;
mod weights;

pub use deliver::{Delivered, Delivery, deliver};
pub use error::{Error, Result};
pub use freeze::{FreezeOptions, Offender, freeze, verify_inference_mode, verify_model};
pub use latency::measure_latency;
pub use manifest::Manifest;
pub use program::{Program, Runner};
pub use quantize::{Calibration, Quantization, QuantizeOptions, quantize};
pub use verify::{Check, Outcome, Report, verify};
