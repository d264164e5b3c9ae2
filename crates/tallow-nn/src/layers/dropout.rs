//! Dropout of single values.

use candle_core::{Result, Tensor};
use candle_nn::ModuleT;
use tallow_tensor::ops;

use crate::error::Site;

/// `nn.Dropout`: in training each value is zero with probability `p`, the others are divided by `1 - p`; in evaluation
/// nothing happens. Any shape to the same (Srivastava et al. 2014).
///
/// The mask comes from the draws of `tallow_tensor::rng`: the same seed and step give the same mask.
#[derive(Debug, Clone, Copy)]
pub struct Dropout {
    p: f64,
}

impl Dropout {
    /// An error unless `0 <= p < 1`.
    pub fn new(p: f64) -> Result<Self> {
        Site::new("Dropout", "").drop_rate("p", p)?;
        Ok(Self { p })
    }

    /// The probability of zero.
    pub fn p(&self) -> f64 {
        self.p
    }
}

impl ModuleT for Dropout {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        if self.p == 0.0 {
            return Ok(xs.clone());
        }
        ops::dropout(xs, self.p, train)
    }
}
