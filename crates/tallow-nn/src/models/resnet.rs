//! ResNet-18, -34 and -50.

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, ModuleT, VarBuilder};
use tallow_tensor::{ops, scope};

use crate::error::Site;
use crate::init;
use crate::layers::{
    AdaptiveAvgPool2d, BasicBlock, BatchNorm2d, BatchNormConfig, Bottleneck, Conv2d, Conv2dConfig,
    Flatten, Layer, Linear, MaxPool2d, Sequential,
};

/// What stands before the residual blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stem {
    /// A 7x7 convolution of stride 2 and a 3x3 max pooling of stride 2, for images of about 224x224: torchvision's.
    #[default]
    ImageNet,
    /// A 3x3 convolution of stride 1 and no pooling, for images of about 32x32 (He et al. 2016, section 4.2).
    Cifar,
}

/// The residual block of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResNetBlock {
    /// [`BasicBlock`]: two 3x3 convolutions.
    Basic,
    /// [`Bottleneck`]: 1x1, 3x3, 1x1, four times the channels out.
    Bottleneck,
}

impl ResNetBlock {
    fn expansion(self) -> usize {
        match self {
            Self::Basic => BasicBlock::EXPANSION,
            Self::Bottleneck => Bottleneck::EXPANSION,
        }
    }

    fn build(
        self,
        i: usize,
        channels: usize,
        stride: usize,
        last_norm: Init,
        vb: VarBuilder,
    ) -> Result<Layer> {
        Ok(match self {
            Self::Basic => Layer::new(BasicBlock::new(i, channels, stride, last_norm, vb)?),
            Self::Bottleneck => Layer::new(Bottleneck::new(i, channels, stride, last_norm, vb)?),
        })
    }
}

/// Settings of [`ResNet`].
#[derive(Debug, Clone, Copy)]
pub struct ResNetConfig {
    /// The residual block.
    pub block: ResNetBlock,
    /// Blocks in each of the four stages.
    pub depths: [usize; 4],
    /// Channels of the stem and of the first stage; each later stage has twice as many. 64; with 16 to 32 and the CIFAR
    /// stem it is a small network for small images.
    pub width: usize,
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes.
    pub num_classes: usize,
    /// What stands before the blocks.
    pub stem: Stem,
    /// Whether each block's last batch norm starts at zero, so that the block starts as its shortcut (Goyal et al.
    /// 2017); torchvision's `zero_init_residual`.
    pub zero_init_residual: bool,
}

impl ResNetConfig {
    /// ResNet-18 for three channels and 1000 classes: 11,689,512 parameters.
    pub fn resnet18() -> Self {
        Self {
            block: ResNetBlock::Basic,
            depths: [2, 2, 2, 2],
            width: 64,
            in_channels: 3,
            num_classes: 1000,
            stem: Stem::ImageNet,
            zero_init_residual: false,
        }
    }

    /// ResNet-34 for three channels and 1000 classes: 21,797,672 parameters.
    pub fn resnet34() -> Self {
        Self {
            depths: [3, 4, 6, 3],
            ..Self::resnet18()
        }
    }

    /// ResNet-50 for three channels and 1000 classes: 25,557,032 parameters.
    pub fn resnet50() -> Self {
        Self {
            block: ResNetBlock::Bottleneck,
            ..Self::resnet34()
        }
    }
}

/// torchvision's `ResNet` (He et al. 2016): stem, four stages of residual blocks with 64, 128, 256 and 512 channels, global
/// average pooling, linear; `[N, C, H, W]` to `[N, K]`.
///
/// Parameters: `conv1`, `bn1`, `layer{1..4}.{block}.*`, `fc`, as in torchvision's state dict.
///
/// ```
/// # use candle_core::{DType, Device, Tensor}; use candle_nn::ModuleT;
/// use tallow_nn::{ResNet, Stem};
/// use tallow_tensor::params::Params;
/// # fn main() -> candle_core::Result<()> {
/// let params = Params::f32_cpu();
/// let model = ResNet::resnet18(10, Stem::Cifar, params.builder())?;
/// let logits = model.forward_t(&Tensor::zeros((1, 3, 32, 32), DType::F32, &Device::Cpu)?, false)?;
/// assert_eq!(logits.dims(), [1, 10]);
/// # Ok(()) }
/// ```
pub struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    stem: Stem,
    stages: Vec<Sequential>,
    fc: Linear,
    path: String,
}

impl ResNet {
    /// ResNet-18 for images of three channels.
    pub fn resnet18(num_classes: usize, stem: Stem, vb: VarBuilder) -> Result<Self> {
        Self::from_config(
            ResNetConfig {
                num_classes,
                stem,
                ..ResNetConfig::resnet18()
            },
            vb,
        )
    }

    /// ResNet-34 for images of three channels.
    pub fn resnet34(num_classes: usize, stem: Stem, vb: VarBuilder) -> Result<Self> {
        Self::from_config(
            ResNetConfig {
                num_classes,
                stem,
                ..ResNetConfig::resnet34()
            },
            vb,
        )
    }

    /// ResNet-50 for images of three channels.
    pub fn resnet50(num_classes: usize, stem: Stem, vb: VarBuilder) -> Result<Self> {
        Self::from_config(
            ResNetConfig {
                num_classes,
                stem,
                ..ResNetConfig::resnet50()
            },
            vb,
        )
    }

    /// With these settings. An error if a size is zero.
    pub fn from_config(config: ResNetConfig, vb: VarBuilder) -> Result<Self> {
        let path = vb.prefix();
        Site::new("ResNet", &path).positive(&[
            ("depths", config.depths.into_iter().min().unwrap_or(0)),
            ("width", config.width),
            ("in_channels", config.in_channels),
            ("num_classes", config.num_classes),
        ])?;
        let width = config.width;
        let conv = Conv2dConfig::default()
            .no_bias()
            .weight_init(init::KAIMING_NORMAL_FAN_OUT);
        let conv1 = match config.stem {
            Stem::ImageNet => Conv2d::new(
                config.in_channels,
                width,
                7,
                conv.stride(2).padding(3),
                vb.pp("conv1"),
            )?,
            Stem::Cifar => Conv2d::new(
                config.in_channels,
                width,
                3,
                conv.padding(1),
                vb.pp("conv1"),
            )?,
        };
        let bn1 = BatchNorm2d::new(width, BatchNormConfig::default(), vb.pp("bn1"))?;
        let stages =
            (0..4).map(|stage| build_stage(&config, stage, vb.pp(format!("layer{}", stage + 1))));
        let stages = stages.collect::<Result<Vec<_>>>()?;
        let fc = Linear::new(
            8 * width * config.block.expansion(),
            config.num_classes,
            vb.pp("fc"),
        )?;
        Ok(Self {
            conv1,
            bn1,
            stem: config.stem,
            stages,
            fc,
            path,
        })
    }

    /// The features before pooling: `[N, 512, H / 32, W / 32]` (2048 channels with bottlenecks; `H / 8` with the CIFAR
    /// stem).
    pub fn features(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let mut xs = ops::relu(&self.bn1.forward_t(&self.conv1.forward(xs)?, train)?)?;
        if self.stem == Stem::ImageNet {
            let _scope = scope::enter_child("maxpool");
            xs = MaxPool2d::new(3).stride(2).padding(1).forward(&xs)?;
        }
        for stage in &self.stages {
            xs = stage.forward_t(&xs, train)?;
        }
        Ok(xs)
    }
}

/// The blocks of a stage; all but the first stage halve the size in their first block.
fn build_stage(config: &ResNetConfig, stage: usize, vb: VarBuilder) -> Result<Sequential> {
    let channels = config.width << stage;
    let expansion = config.block.expansion();
    let last_norm = if config.zero_init_residual {
        candle_nn::init::ZERO
    } else {
        candle_nn::init::ONE
    };
    let mut blocks = Sequential::builder(vb);
    for index in 0..config.depths[stage] {
        let (i, stride) = match (stage, index) {
            (0, 0) => (config.width, 1),
            (_, 0) => (channels / 2 * expansion, 2),
            _ => (channels * expansion, 1),
        };
        blocks = blocks.layer(|vb| config.block.build(i, channels, stride, last_norm, vb))?;
    }
    Ok(blocks.build())
}

impl ModuleT for ResNet {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let xs = self.features(xs, train)?;
        let xs = {
            let _scope = scope::enter_child("avgpool");
            AdaptiveAvgPool2d::new(1).forward(&xs)?
        };
        self.fc.forward(&Flatten.forward(&xs)?)
    }
}
