//! The residual block of ResNet-50.

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, ModuleT, VarBuilder};
use tallow_tensor::{ops, scope};

use super::basic_block::{conv, downsample, join};
use super::{BatchNorm2d, BatchNormConfig, Conv2d, Sequential};

/// torchvision's `Bottleneck`: 1x1 convolution to `C`, 3x3 convolution (with the stride, "v1.5"), 1x1 convolution to
/// `4 C`, each with batch norm, plus the shortcut; `[N, I, H, W]` to `[N, 4 C, H / stride, W / stride]` (He et al. 2016).
///
/// Parameters: `conv1.weight`, `bn1.*`, `conv2.weight`, `bn2.*`, `conv3.weight`, `bn3.*`, and `downsample.0.weight`,
/// `downsample.1.*` where the shape changes.
pub struct Bottleneck {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    conv3: Conv2d,
    bn3: BatchNorm2d,
    downsample: Option<Sequential>,
    path: String,
}

impl Bottleneck {
    /// Channels of the output for each channel asked for.
    pub const EXPANSION: usize = 4;

    /// From `in_channels` to `4 * channels`. `last_norm` is how the last batch norm's weight starts:
    /// [`candle_nn::init::ONE`], or zero to start the branch as nothing. An error if a size is zero.
    pub fn new(
        in_channels: usize,
        channels: usize,
        stride: usize,
        last_norm: Init,
        vb: VarBuilder,
    ) -> Result<Self> {
        let norm = BatchNormConfig::default();
        let last = BatchNormConfig {
            weight_init: last_norm,
            ..norm
        };
        let out_channels = channels * Self::EXPANSION;
        Ok(Self {
            conv1: conv(in_channels, channels, 1, 1, vb.pp("conv1"))?,
            bn1: BatchNorm2d::new(channels, norm, vb.pp("bn1"))?,
            conv2: conv(channels, channels, 3, stride, vb.pp("conv2"))?,
            bn2: BatchNorm2d::new(channels, norm, vb.pp("bn2"))?,
            conv3: conv(channels, out_channels, 1, 1, vb.pp("conv3"))?,
            bn3: BatchNorm2d::new(out_channels, last, vb.pp("bn3"))?,
            downsample: downsample(in_channels, out_channels, stride, vb.pp("downsample"))?,
            path: vb.prefix(),
        })
    }
}

impl ModuleT for Bottleneck {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let ys = ops::relu(&self.bn1.forward_t(&self.conv1.forward(xs)?, train)?)?;
        let ys = ops::relu(&self.bn2.forward_t(&self.conv2.forward(&ys)?, train)?)?;
        let ys = self.bn3.forward_t(&self.conv3.forward(&ys)?, train)?;
        join(xs, &ys, self.downsample.as_ref(), train)
    }
}
