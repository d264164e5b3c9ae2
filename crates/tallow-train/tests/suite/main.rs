//! Everything through the public API, a module a concern. One program, since linking candle is slow.

mod checkpoint;
mod compiled;
mod hooks;
mod metrics;
mod optimize;
mod optimizer;
mod repeatable;
mod schedule;
mod toy;
mod training;
mod updates;
