//! Layer normalisation.

use candle_core::{Result, Shape, Tensor};
use candle_nn::{Module, VarBuilder};
use tallow_tensor::{ops, scope};

use crate::error::Site;

/// `nn.LayerNorm`: `y = (x - mean) / sqrt(var + eps) * weight + bias` over the last dimensions, any shape to the same
/// (Ba et al. 2016). The variance is the biased one. PyTorch's `eps` is 1e-5, timm's ViTs use 1e-6.
///
/// Parameters: `weight`, `bias`, both of the normalised shape.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    eps: f64,
    path: String,
}

impl LayerNorm {
    /// Normalises over the last dimensions, which must be `shape`: `192` or `(16, 8)`. An error if a size is zero or
    /// `eps` is not above zero.
    pub fn new(shape: impl Into<Shape>, eps: f64, vb: VarBuilder) -> Result<Self> {
        let shape = shape.into();
        let path = vb.prefix();
        let site = Site::new("LayerNorm", &path);
        site.positive(&[("the normalised shape's size", shape.elem_count())])?;
        site.above_zero("eps", eps)?;
        let weight = vb.get_with_hints(shape.clone(), "weight", candle_nn::init::ONE)?;
        let bias = vb.get_with_hints(shape, "bias", candle_nn::init::ZERO)?;
        Ok(Self {
            weight,
            bias,
            eps,
            path,
        })
    }
}

impl Module for LayerNorm {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        ops::layer_norm(xs, &self.weight, &self.bias, self.eps)
    }
}
