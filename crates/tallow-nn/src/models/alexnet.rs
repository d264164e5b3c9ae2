//! AlexNet.

use candle_core::{Result, Tensor};
use candle_nn::{Module, ModuleT, VarBuilder};
use tallow_tensor::scope;

use crate::layers::{
    Activation, AdaptiveAvgPool2d, Conv2d, Conv2dConfig, Dropout, Flatten, Linear, MaxPool2d,
    Sequential,
};

/// Settings of [`AlexNet`], with torchvision's defaults.
#[derive(Debug, Clone, Copy)]
pub struct AlexNetConfig {
    /// Channels of the image; 3.
    pub in_channels: usize,
    /// Classes; 1000.
    pub num_classes: usize,
    /// Dropout before the first two linear layers; 0.5.
    pub dropout: f64,
}

impl Default for AlexNetConfig {
    fn default() -> Self {
        Self {
            in_channels: 3,
            num_classes: 1000,
            dropout: 0.5,
        }
    }
}

/// `torchvision.models.alexnet` (Krizhevsky 2014, "One weird trick"): `[N, 3, H, W]` to `[N, K]`, sides of 63 and more;
/// 61,100,840 parameters for 1000 classes.
pub struct AlexNet {
    features: Sequential,
    classifier: Sequential,
    path: String,
}

impl AlexNet {
    /// With torchvision's defaults.
    pub fn new(num_classes: usize, vb: VarBuilder) -> Result<Self> {
        Self::from_config(
            AlexNetConfig {
                num_classes,
                ..Default::default()
            },
            vb,
        )
    }

    /// With these settings. An error if a size is zero or the dropout is not in `0..1`.
    pub fn from_config(config: AlexNetConfig, vb: VarBuilder) -> Result<Self> {
        Ok(Self {
            features: features(config.in_channels, vb.pp("features"))?,
            classifier: classifier(config.num_classes, config.dropout, vb.pp("classifier"))?,
            path: vb.prefix(),
        })
    }
}

fn features(in_channels: usize, vb: VarBuilder) -> Result<Sequential> {
    let conv = Conv2dConfig::default();
    let pool = MaxPool2d::new(3).stride(2);
    Ok(Sequential::builder(vb)
        .layer(|vb| Conv2d::new(in_channels, 64, 11, conv.stride(4).padding(2), vb))?
        .then(Activation::Relu)
        .then(pool)
        .layer(|vb| Conv2d::new(64, 192, 5, conv.padding(2), vb))?
        .then(Activation::Relu)
        .then(pool)
        .layer(|vb| Conv2d::new(192, 384, 3, conv.padding(1), vb))?
        .then(Activation::Relu)
        .layer(|vb| Conv2d::new(384, 256, 3, conv.padding(1), vb))?
        .then(Activation::Relu)
        .layer(|vb| Conv2d::new(256, 256, 3, conv.padding(1), vb))?
        .then(Activation::Relu)
        .then(pool)
        .build())
}

fn classifier(num_classes: usize, dropout: f64, vb: VarBuilder) -> Result<Sequential> {
    Ok(Sequential::builder(vb)
        .then(Dropout::new(dropout)?)
        .layer(|vb| Linear::new(256 * 6 * 6, 4096, vb))?
        .then(Activation::Relu)
        .then(Dropout::new(dropout)?)
        .layer(|vb| Linear::new(4096, 4096, vb))?
        .then(Activation::Relu)
        .layer(|vb| Linear::new(4096, num_classes, vb))?
        .build())
}

impl ModuleT for AlexNet {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let xs = self.features.forward_t(xs, train)?;
        let xs = {
            let _scope = scope::enter_child("avgpool");
            AdaptiveAvgPool2d::new(6).forward(&xs)?
        };
        self.classifier.forward_t(&Flatten.forward(&xs)?, train)
    }
}
