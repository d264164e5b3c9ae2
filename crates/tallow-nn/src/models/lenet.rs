//! LeNet-5.

use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};
use tallow_tensor::{ops, scope};

use crate::error::Site;
use crate::layers::{Conv2d, Conv2dConfig, Flatten, Linear, MaxPool2d};

/// Settings of [`LeNet5`].
#[derive(Debug, Clone, Copy)]
pub struct LeNet5Config {
    /// Channels of the image; 1.
    pub in_channels: usize,
    /// Classes; 10.
    pub num_classes: usize,
    /// Side of the square image; 28.
    pub image_size: usize,
    /// Zeros around the image: 2, which makes the 32x32 of the paper from 28x28.
    pub padding: usize,
}

impl Default for LeNet5Config {
    fn default() -> Self {
        Self {
            in_channels: 1,
            num_classes: 10,
            image_size: 28,
            padding: 2,
        }
    }
}

/// LeNet-5 (LeCun et al. 1998) as PyTorch's tutorials write it: ReLU, max pooling, no Gaussian layer. `[N, 1, 28, 28]`
/// to `[N, 10]`; 61,706 parameters.
///
/// Parameters: `conv1`, `conv2`, `fc1`, `fc2`, `fc3`.
#[derive(Debug, Clone)]
pub struct LeNet5 {
    conv1: Conv2d,
    conv2: Conv2d,
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
    path: String,
}

impl LeNet5 {
    /// For images of 28x28 with one channel.
    pub fn new(num_classes: usize, vb: VarBuilder) -> Result<Self> {
        Self::from_config(
            LeNet5Config {
                num_classes,
                ..Default::default()
            },
            vb,
        )
    }

    /// With these settings. An error if a size is zero or the image is too small for two convolutions and poolings.
    pub fn from_config(config: LeNet5Config, vb: VarBuilder) -> Result<Self> {
        let path = vb.prefix();
        let site = Site::new("LeNet5", &path);
        site.positive(&[
            ("in_channels", config.in_channels),
            ("num_classes", config.num_classes),
        ])?;
        let padded = config.image_size + 2 * config.padding;
        if padded < 16 {
            return site.setting(
                "image_size",
                config.image_size,
                "at least 16 with its padding",
            );
        }
        let side = ((padded - 4) / 2 - 4) / 2;
        let conv = Conv2dConfig::default();
        Ok(Self {
            conv1: Conv2d::new(
                config.in_channels,
                6,
                5,
                conv.padding(config.padding),
                vb.pp("conv1"),
            )?,
            conv2: Conv2d::new(6, 16, 5, conv, vb.pp("conv2"))?,
            fc1: Linear::new(16 * side * side, 120, vb.pp("fc1"))?,
            fc2: Linear::new(120, 84, vb.pp("fc2"))?,
            fc3: Linear::new(84, config.num_classes, vb.pp("fc3"))?,
            path,
        })
    }
}

impl Module for LeNet5 {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let pool = MaxPool2d::new(2);
        let xs = pool.forward(&ops::relu(&self.conv1.forward(xs)?)?)?;
        let xs = pool.forward(&ops::relu(&self.conv2.forward(&xs)?)?)?;
        let xs = ops::relu(&self.fc1.forward(&Flatten.forward(&xs)?)?)?;
        let xs = ops::relu(&self.fc2.forward(&xs)?)?;
        self.fc3.forward(&xs)
    }
}
