//! Dropout of whole residual branches.

use candle_core::{Result, Tensor};
use candle_nn::ModuleT;
use tallow_tensor::ops;

use crate::error::Site;

/// timm's `DropPath` (stochastic depth, Huang et al. 2016): in training each sample of the batch is zero with
/// probability `p`, the others are divided by `1 - p`; in evaluation nothing happens. `[N, ..]` to the same.
///
/// The mask comes from the draws of `tallow_tensor::rng`: the same seed and step give the same mask.
#[derive(Debug, Clone, Copy)]
pub struct DropPath {
    p: f64,
}

impl DropPath {
    /// An error unless `0 <= p < 1`.
    pub fn new(p: f64) -> Result<Self> {
        Site::new("DropPath", "").drop_rate("p", p)?;
        Ok(Self { p })
    }

    /// The rates of a network of `depth` blocks whose last drops with probability `last`: linear from zero, as timm's
    /// `drop_path_rate` means it.
    ///
    /// ```
    /// assert_eq!(tallow_nn::DropPath::linear_rates(0.2, 3), [0.0, 0.1, 0.2]);
    /// ```
    pub fn linear_rates(last: f64, depth: usize) -> Vec<f64> {
        let steps = depth.saturating_sub(1).max(1) as f64;
        (0..depth)
            .map(|block| last * block as f64 / steps)
            .collect()
    }
}

impl ModuleT for DropPath {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        if self.p == 0.0 {
            return Ok(xs.clone());
        }
        ops::drop_path(xs, self.p, train)
    }
}
