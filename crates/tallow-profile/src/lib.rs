#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | file | holds |
//! |---|---|
//! | `profiler.rs`, `schedule.rs`, `hook.rs` | [`Profiler`], [`Schedule`], [`ProfilerHook`]: when recording is on |
//! | `layer.rs`, `session.rs`, `gather.rs` | from `tracing` spans to buffers, and from those to a profile |
//! | `profile.rs`, `memory.rs`, `machine.rs` | [`Profile`], the data; memory over time; what the machine can do |
//! | `tree.rs` | which time is whose own, and to which part of a step it belongs |
//! | `table.rs`, `bottleneck.rs` | reports as data and as text |
//! | `trace_event.rs`, `flame.rs`, `html.rs` | reports as files |
//! | `folder.rs` | all of them in a folder, and [`from_env`] |
//! | `error.rs` | [`Error`] |

mod bottleneck;
mod error;
mod flame;
mod folder;
mod gather;
mod hook;
mod html;
mod layer;
mod machine;
mod memory;
mod profile;
mod profiler;
mod schedule;
mod session;
mod table;
mod trace_event;
mod tree;

pub use bottleneck::{Bottlenecks, Finding, Waiting};
pub use error::{Error, Result};
pub use folder::{FromEnv, from_env};
pub use hook::ProfilerHook;
pub use layer::layer;
pub use machine::Machine;
pub use profile::{Counter, Holder, Memory, Profile, Span, Stage, Step, Window};
pub use profiler::{Profiler, ProfilerBuilder};
pub use schedule::{Phase, Schedule};
pub use table::{Grouping, Row, Table};
pub use tree::{Part, PartTime};
