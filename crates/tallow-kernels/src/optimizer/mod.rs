//! Optimizer updates, each one pass over a parameter, its gradient and its state where the formula allows it, with the
//! formulas of `torch.optim`; many parameters in one parallel section.
//!
//! The state belongs to the caller, one slice a parameter, zero at the start.

mod adamw;
mod lamb;
mod many;
mod muon;
mod sgd;
mod vectors;

pub use adamw::{AdamW, adamw, adamw_many};
pub use lamb::{Lamb, lamb_many};
pub use many::Job;
pub use muon::{Muon, NewtonSchulz, muon, orthogonalize};
pub use sgd::{Sgd, SgdStep, sgd, sgd_many};
pub use vectors::{add_scaled, approach, clamp, scale, square_sum};

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
const BELOW_1: &str = "at least 0 and below 1";
/// The largest number below 1.
const LARGEST_BETA: f64 = 1.0 - f64::EPSILON / 2.0;

/// Fails for a step of 0.
fn check_step(kernel: &'static str, step: u64) -> Result<()> {
    if step > 0 {
        return Ok(());
    }
    Err(Error::Parameter {
        kernel,
        parameter: "step",
        found: 0.0,
        allowed: "counted from 1",
    })
}
