//! The residual block of ResNet-18 and ResNet-34.

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, ModuleT, VarBuilder};
use tallow_tensor::{ops, scope};

use super::{BatchNorm2d, BatchNormConfig, Conv2d, Conv2dConfig, Sequential};
use crate::init;

/// torchvision's `BasicBlock`: `relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x))`, `[N, C, H, W]` to
/// `[N, O, H / stride, W / stride]` (He et al. 2016).
///
/// Both convolutions are 3x3; the shortcut is `x` itself, or a strided 1x1 convolution and batch norm where the shape
/// changes.
///
/// Parameters: `conv1.weight`, `bn1.*`, `conv2.weight`, `bn2.*`, and `downsample.0.weight`, `downsample.1.*`.
pub struct BasicBlock {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    downsample: Option<Sequential>,
    path: String,
}

impl BasicBlock {
    /// Channels of the output for each channel asked for.
    pub const EXPANSION: usize = 1;

    /// From `in_channels` to `channels`, halving the size at stride 2. `last_norm` is how the last batch norm's weight
    /// starts: [`candle_nn::init::ONE`], or zero to start the branch as nothing. An error if a size is zero.
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
        Ok(Self {
            conv1: conv(in_channels, channels, 3, stride, vb.pp("conv1"))?,
            bn1: BatchNorm2d::new(channels, norm, vb.pp("bn1"))?,
            conv2: conv(channels, channels, 3, 1, vb.pp("conv2"))?,
            bn2: BatchNorm2d::new(channels, last, vb.pp("bn2"))?,
            downsample: downsample(in_channels, channels, stride, vb.pp("downsample"))?,
            path: vb.prefix(),
        })
    }
}

impl ModuleT for BasicBlock {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let ys = ops::relu(&self.bn1.forward_t(&self.conv1.forward(xs)?, train)?)?;
        let ys = self.bn2.forward_t(&self.conv2.forward(&ys)?, train)?;
        join(xs, &ys, self.downsample.as_ref(), train)
    }
}

/// A square convolution that keeps the size at stride 1, initialised as torchvision does in its ResNets.
pub(crate) fn conv(
    i: usize,
    o: usize,
    kernel: usize,
    stride: usize,
    vb: VarBuilder,
) -> Result<Conv2d> {
    let config = Conv2dConfig::default()
        .stride(stride)
        .padding(kernel / 2)
        .no_bias()
        .weight_init(init::KAIMING_NORMAL_FAN_OUT);
    Conv2d::new(i, o, kernel, config, vb)
}

/// The projection on the shortcut, where stride or channels change the shape.
pub(crate) fn downsample(
    i: usize,
    o: usize,
    stride: usize,
    vb: VarBuilder,
) -> Result<Option<Sequential>> {
    if stride == 1 && i == o {
        return Ok(None);
    }
    let projection = Sequential::builder(vb)
        .layer(|vb| conv(i, o, 1, stride, vb))?
        .layer(|vb| BatchNorm2d::new(o, BatchNormConfig::default(), vb))?
        .build();
    Ok(Some(projection))
}

/// `relu(branch + shortcut(xs))`.
pub(crate) fn join(
    xs: &Tensor,
    branch: &Tensor,
    downsample: Option<&Sequential>,
    train: bool,
) -> Result<Tensor> {
    let sum = match downsample {
        Some(downsample) => ops::add(branch, &downsample.forward_t(xs, train)?)?,
        None => ops::add(branch, xs)?,
    };
    ops::relu(&sum)
}
