//! The two-layer perceptron of a transformer block.

use candle_core::{Result, Tensor};
use candle_nn::{Module, ModuleT, VarBuilder};
use tallow_tensor::scope;

use super::{Activation, Dropout, Linear, LinearConfig};

/// Settings of [`Mlp`].
#[derive(Debug, Clone, Copy)]
pub struct MlpConfig {
    /// The nonlinearity between the layers; exact GELU.
    pub activation: Activation,
    /// Dropout after each layer; 0.
    pub dropout: f64,
    /// Settings of both layers; timm's in a ViT.
    pub linear: LinearConfig,
}

impl Default for MlpConfig {
    fn default() -> Self {
        Self {
            activation: Activation::Gelu,
            dropout: 0.0,
            linear: LinearConfig::vit(true),
        }
    }
}

/// timm's `Mlp`: `fc2(act(fc1(x)))` with dropout after each, `[.., C]` to the same.
///
/// Parameters: `fc1.weight [H, C]`, `fc1.bias`, `fc2.weight [C, H]`, `fc2.bias`.
#[derive(Debug, Clone)]
pub struct Mlp {
    fc1: Linear,
    fc2: Linear,
    activation: Activation,
    dropout: Dropout,
    path: String,
}

impl Mlp {
    /// An error if a size is zero or the dropout is not in `0..1`.
    pub fn new(features: usize, hidden: usize, config: MlpConfig, vb: VarBuilder) -> Result<Self> {
        Ok(Self {
            fc1: Linear::from_config(features, hidden, config.linear, vb.pp("fc1"))?,
            fc2: Linear::from_config(hidden, features, config.linear, vb.pp("fc2"))?,
            activation: config.activation,
            dropout: Dropout::new(config.dropout)?,
            path: vb.prefix(),
        })
    }
}

impl ModuleT for Mlp {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let ys = self.activation.forward(&self.fc1.forward(xs)?)?;
        let ys = self.fc2.forward(&self.dropout.forward_t(&ys, train)?)?;
        self.dropout.forward_t(&ys, train)
    }
}
