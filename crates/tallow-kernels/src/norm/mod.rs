//! Normalisation: batch norm over `[N, C, S]`, layer norm over rows, group norm over groups of
//! channels. Forward passes that train save the mean and `1 / sqrt(var + eps)` that they used; the
//! backward passes take these.
//!
//! Statistics are summed in `f64` (the square of an `f32` is exact there), so that a mean far from
//! zero costs no digits of the variance. Every pass reads its inputs once to sum and once to write.

mod batch;
mod group;
mod layer;

pub use batch::{
    batch_norm_apply, batch_norm_backward, batch_norm_backward_eval, batch_norm_eval,
    batch_norm_gradient_sums, batch_norm_input_gradient, batch_norm_statistics, batch_norm_sums,
    batch_norm_train, update_running,
};
pub use group::{group_norm, group_norm_backward};
pub use layer::{layer_norm, layer_norm_backward};

use crate::error::{Error, Result};

/// Mean and biased variance from `sum(x)`, `sum(x * x)` and the number of elements.
#[inline(always)]
fn mean_and_variance([sum, squares]: [f64; 2], count: f64) -> (f64, f64) {
    let mean = sum / count;
    let variance = squares / count - mean * mean;
    // Rounding may leave a constant's variance below 0; a NaN stays one.
    (mean, if variance < 0.0 { 0.0 } else { variance })
}

fn check_eps(kernel: &'static str, eps: f64) -> Result<()> {
    if eps >= 0.0 && eps.is_finite() {
        return Ok(());
    }
    Err(Error::Parameter {
        kernel,
        parameter: "eps",
        found: eps,
        allowed: "finite and at least 0",
    })
}
