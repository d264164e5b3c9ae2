//! Fully connected layer.

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use tallow_tensor::{ops, scope};

use crate::error::Site;
use crate::init;

/// Settings of [`Linear`], with the defaults of `nn.Linear`.
#[derive(Debug, Clone, Copy)]
pub struct LinearConfig {
    /// Whether a bias is added; true.
    pub bias: bool,
    /// How the weight starts; `None` is PyTorch's default, [`init::uniform_fan_in`].
    pub weight_init: Option<Init>,
    /// How the bias starts; `None` is PyTorch's default, [`init::uniform_fan_in`].
    pub bias_init: Option<Init>,
}

impl Default for LinearConfig {
    fn default() -> Self {
        Self {
            bias: true,
            weight_init: None,
            bias_init: None,
        }
    }
}

impl LinearConfig {
    /// timm's settings in a ViT: weight normal with standard deviation 0.02, bias zero.
    pub fn vit(bias: bool) -> Self {
        Self {
            bias,
            weight_init: Some(init::NORMAL_002),
            bias_init: Some(candle_nn::init::ZERO),
        }
    }
}

/// `nn.Linear`: `y = x Wᵀ + b`, `[.., I]` to `[.., O]`.
///
/// Parameters: `weight [O, I]`, `bias [O]`.
#[derive(Debug, Clone)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    path: String,
}

impl Linear {
    /// With PyTorch's defaults. An error if a size is zero.
    pub fn new(in_features: usize, out_features: usize, vb: VarBuilder) -> Result<Self> {
        Self::from_config(in_features, out_features, LinearConfig::default(), vb)
    }

    /// With these settings. An error if a size is zero.
    pub fn from_config(
        in_features: usize,
        out_features: usize,
        config: LinearConfig,
        vb: VarBuilder,
    ) -> Result<Self> {
        let path = vb.prefix();
        Site::new("Linear", &path)
            .positive(&[("in_features", in_features), ("out_features", out_features)])?;
        let default = init::uniform_fan_in(in_features);
        let weight_init = config.weight_init.unwrap_or(default);
        let weight = vb.get_with_hints((out_features, in_features), "weight", weight_init)?;
        let bias_init = config.bias_init.unwrap_or(default);
        let bias = if config.bias {
            Some(vb.get_with_hints(out_features, "bias", bias_init)?)
        } else {
            None
        };
        Ok(Self { weight, bias, path })
    }

    /// The weight, `[O, I]`.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, `[O]`.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }
}

impl Module for Linear {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        ops::linear(xs, &self.weight, self.bias.as_ref())
    }
}
