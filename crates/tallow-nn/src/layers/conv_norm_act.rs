//! Convolution, batch norm and activation as one layer.

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, ModuleT, VarBuilder};
use tallow_tensor::scope;

use super::{Activation, BatchNorm2d, BatchNormConfig, Conv2d, Conv2dConfig};

/// Settings of [`ConvNormAct`].
#[derive(Debug, Clone, Copy)]
pub struct ConvNormActConfig {
    /// Side of the square kernel; 3.
    pub kernel: usize,
    /// Steps of the window, both ways; 1.
    pub stride: usize,
    /// Zeros on each side; `None`, the default, is `dilation (kernel - 1) / 2`, which keeps the size at stride 1.
    pub padding: Option<usize>,
    /// Distance of the kernel's taps; 1.
    pub dilation: usize,
    /// Groups of channels; 1.
    pub groups: usize,
    /// The nonlinearity at the end; ReLU.
    pub activation: Option<Activation>,
    /// Batch norm settings.
    pub norm: BatchNormConfig,
    /// How the convolution's weight starts; `None` is PyTorch's default.
    pub weight_init: Option<Init>,
}

impl Default for ConvNormActConfig {
    fn default() -> Self {
        Self {
            kernel: 3,
            stride: 1,
            padding: None,
            dilation: 1,
            groups: 1,
            activation: Some(Activation::Relu),
            norm: BatchNormConfig::default(),
            weight_init: None,
        }
    }
}

/// timm's `ConvNormAct`: `act(bn(conv(x)))`, `[N, C, H, W]` to `[N, O, H', W']`; the convolution has no bias.
///
/// Parameters: `conv.weight`, and those of [`BatchNorm2d`] under `bn`.
#[derive(Debug, Clone)]
pub struct ConvNormAct {
    conv: Conv2d,
    bn: BatchNorm2d,
    activation: Option<Activation>,
    path: String,
}

impl ConvNormAct {
    /// Errors are those of [`Conv2d::new`] and [`BatchNorm2d::new`].
    pub fn new(
        in_channels: usize,
        out_channels: usize,
        config: ConvNormActConfig,
        vb: VarBuilder,
    ) -> Result<Self> {
        let same = config.dilation * config.kernel.saturating_sub(1) / 2;
        let mut conv = Conv2dConfig::default()
            .stride(config.stride)
            .padding(config.padding.unwrap_or(same))
            .dilation(config.dilation)
            .groups(config.groups)
            .no_bias();
        conv.weight_init = config.weight_init;
        Ok(Self {
            conv: Conv2d::new(
                in_channels,
                out_channels,
                config.kernel,
                conv,
                vb.pp("conv"),
            )?,
            bn: BatchNorm2d::new(out_channels, config.norm, vb.pp("bn"))?,
            activation: config.activation,
            path: vb.prefix(),
        })
    }
}

impl ModuleT for ConvNormAct {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let ys = self.bn.forward_t(&self.conv.forward(xs)?, train)?;
        match self.activation {
            Some(activation) => activation.forward(&ys),
            None => Ok(ys),
        }
    }
}
