//! Everything through the public API, a module a concern. One program, since linking candle is slow.

mod checkpoint;
mod checkpoint_folder;
mod class_scores;
mod compiled;
mod distributed;
mod early_stopping;
mod guards;
mod hooks;
mod joint;
#[cfg(unix)]
mod killed;
mod limits;
mod logs;
mod metrics;
mod optimize;
mod optimizer;
mod rates;
mod repeatable;
mod run_folder;
mod schedule;
mod toy;
mod training;
mod updates;
