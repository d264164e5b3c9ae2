//! A small network for small images.

use candle_core::{Result, Tensor};
use candle_nn::{Module, ModuleT, VarBuilder};
use tallow_tensor::scope;

use crate::layers::{
    Activation, AdaptiveAvgPool2d, ConvNormAct, ConvNormActConfig, Dropout, Flatten, Linear,
    Sequential,
};

/// Settings of [`SimpleCifar`].
#[derive(Debug, Clone, Copy)]
pub struct SimpleCifarConfig {
    /// Channels of the image; 3.
    pub in_channels: usize,
    /// Classes; 10.
    pub num_classes: usize,
    /// Dropout before the linear layer; 0.2.
    pub dropout: f64,
}

impl Default for SimpleCifarConfig {
    fn default() -> Self {
        Self {
            in_channels: 3,
            num_classes: 10,
            dropout: 0.2,
        }
    }
}

/// Three [`ConvNormAct`] (3x3, 64, 128 and 256 channels, strides 1, 2, 2, ReLU6), global average pooling, dropout, linear:
/// `[N, C, H, W]` to `[N, K]`; 373,834 parameters for CIFAR-10.
///
/// Parameters: `features.{0,1,2}.conv.weight`, `features.{0,1,2}.bn.*`, `fc.weight`, `fc.bias`.
///
/// ```
/// # use candle_core::{DType, Device, Tensor}; use candle_nn::ModuleT;
/// use tallow_nn::SimpleCifar;
/// use tallow_tensor::params::Params;
/// # fn main() -> candle_core::Result<()> {
/// let params = Params::f32_cpu();
/// let model = SimpleCifar::new(1, 10, params.builder())?;
/// let logits = model.forward_t(&Tensor::zeros((2, 1, 28, 28), DType::F32, &Device::Cpu)?, false)?;
/// assert_eq!(logits.dims(), [2, 10]);
/// # Ok(()) }
/// ```
pub struct SimpleCifar {
    features: Sequential,
    dropout: Dropout,
    fc: Linear,
    path: String,
}

impl SimpleCifar {
    /// With dropout 0.2.
    pub fn new(in_channels: usize, num_classes: usize, vb: VarBuilder) -> Result<Self> {
        Self::from_config(
            SimpleCifarConfig {
                in_channels,
                num_classes,
                ..Default::default()
            },
            vb,
        )
    }

    /// With these settings. An error if a size is zero or the dropout is not in `0..1`.
    pub fn from_config(config: SimpleCifarConfig, vb: VarBuilder) -> Result<Self> {
        let block = |stride| ConvNormActConfig {
            stride,
            activation: Some(Activation::Relu6),
            ..Default::default()
        };
        let features = Sequential::builder(vb.pp("features"))
            .layer(|vb| ConvNormAct::new(config.in_channels, 64, block(1), vb))?
            .layer(|vb| ConvNormAct::new(64, 128, block(2), vb))?
            .layer(|vb| ConvNormAct::new(128, 256, block(2), vb))?
            .build();
        let fc = Linear::new(256, config.num_classes, vb.pp("fc"))?;
        Ok(Self {
            features,
            dropout: Dropout::new(config.dropout)?,
            fc,
            path: vb.prefix(),
        })
    }
}

impl ModuleT for SimpleCifar {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let xs = AdaptiveAvgPool2d::new(1).forward(&self.features.forward_t(xs, train)?)?;
        let xs = self.dropout.forward_t(&Flatten.forward(&xs)?, train)?;
        self.fc.forward(&xs)
    }
}
