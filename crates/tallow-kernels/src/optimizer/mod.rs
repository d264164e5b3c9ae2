//! Optimizer updates, each one pass over a parameter, its gradient and its state, with the
//! formulas of `torch.optim`.
//!
//! The state belongs to the caller, one slice a parameter, zero at the start.

mod adamw;
mod sgd;

pub use adamw::{AdamW, adamw};
pub use sgd::{Sgd, sgd};

use crate::error::{Error, Result};

/// Fails unless `found` lies within `low..=high`.
fn check_range(
    kernel: &'static str,
    parameter: &'static str,
    found: f64,
    range: std::ops::RangeInclusive<f64>,
    allowed: &'static str,
) -> Result<()> {
    if range.contains(&found) {
        return Ok(());
    }
    Err(Error::Parameter {
        kernel,
        parameter,
        found,
        allowed,
    })
}

const FINITE: &str = "finite and at least 0";
