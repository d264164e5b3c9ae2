//! A learned scale on a residual branch.

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use tallow_tensor::{ops, scope};

use crate::error::Site;

/// timm's `LayerScale`: `y = x * gamma`, channels last, `[.., C]` to the same (Touvron et al. 2021).
///
/// Parameters: `gamma [C]`, starting at `init_value` (timm: 1e-5).
#[derive(Debug, Clone)]
pub struct LayerScale {
    gamma: Tensor,
    path: String,
}

impl LayerScale {
    /// An error if `channels` is zero or `init_value` is not finite.
    pub fn new(channels: usize, init_value: f64, vb: VarBuilder) -> Result<Self> {
        let path = vb.prefix();
        let site = Site::new("LayerScale", &path);
        site.positive(&[("channels", channels)])?;
        if !init_value.is_finite() {
            return site.setting("init_value", init_value, "a finite number");
        }
        let gamma = vb.get_with_hints(channels, "gamma", Init::Const(init_value))?;
        Ok(Self { gamma, path })
    }
}

impl Module for LayerScale {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        ops::mul(xs, &self.gamma)
    }
}
