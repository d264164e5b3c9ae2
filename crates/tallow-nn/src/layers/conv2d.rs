//! Two-dimensional convolution.

use candle_core::{Result, Tensor, ToUsize2};
use candle_nn::{Init, Module, VarBuilder};
use tallow_tensor::{ops, scope};

use crate::error::Site;
use crate::init;

/// Settings of [`Conv2d`], with the defaults of `nn.Conv2d`.
#[derive(Debug, Clone, Copy)]
pub struct Conv2dConfig {
    /// Steps of the window, `[vertical, horizontal]`; 1.
    pub stride: [usize; 2],
    /// Zeros added on each side, `[vertical, horizontal]`; 0.
    pub padding: [usize; 2],
    /// Distance of the kernel's taps, `[vertical, horizontal]`; 1.
    pub dilation: [usize; 2],
    /// Groups of channels that do not see each other; 1. `in_channels` groups are a depthwise convolution.
    pub groups: usize,
    /// Whether a bias is added; true.
    pub bias: bool,
    /// How the weight starts; `None` is PyTorch's default, [`init::uniform_fan_in`].
    pub weight_init: Option<Init>,
}

impl Default for Conv2dConfig {
    fn default() -> Self {
        Self {
            stride: [1; 2],
            padding: [0; 2],
            dilation: [1; 2],
            groups: 1,
            bias: true,
            weight_init: None,
        }
    }
}

impl Conv2dConfig {
    /// With this stride, `2` or `(2, 1)`.
    pub fn stride(mut self, stride: impl ToUsize2) -> Self {
        self.stride = stride.to_usize2().into();
        self
    }

    /// With this padding, `1` or `(1, 0)`.
    pub fn padding(mut self, padding: impl ToUsize2) -> Self {
        self.padding = padding.to_usize2().into();
        self
    }

    /// With this dilation, `2` or `(2, 1)`.
    pub fn dilation(mut self, dilation: impl ToUsize2) -> Self {
        self.dilation = dilation.to_usize2().into();
        self
    }

    /// With this many groups.
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    /// Without a bias, as before a batch norm.
    pub fn no_bias(mut self) -> Self {
        self.bias = false;
        self
    }

    /// With this initialiser for the weight.
    pub fn weight_init(mut self, init: Init) -> Self {
        self.weight_init = Some(init);
        self
    }
}

/// `nn.Conv2d`: `y[n, o] = Σ_c w[o, c] ⋆ x[n, c] + b[o]`, `[N, C, H, W]` to `[N, O, H', W']` with
/// `H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1`, rounded down.
///
/// Parameters: `weight [O, C / groups, kh, kw]`, `bias [O]`.
///
/// ```
/// # use candle_core::{DType, Device, Tensor}; use candle_nn::{Module, VarBuilder, VarMap};
/// use tallow_nn::{Conv2d, Conv2dConfig};
/// # fn main() -> candle_core::Result<()> {
/// let vars = VarMap::new();
/// let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
/// let conv = Conv2d::new(3, 16, 3, Conv2dConfig::default().stride(2).padding(1), vb.pp("conv"))?;
/// let y = conv.forward(&Tensor::zeros((1, 3, 32, 32), DType::F32, &Device::Cpu)?)?;
/// assert_eq!(y.dims(), [1, 16, 16, 16]);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Conv2d {
    weight: Tensor,
    bias: Option<Tensor>,
    config: ops::Conv2dConfig,
    path: String,
}

impl Conv2d {
    /// A convolution with a `kernel` of `3` or `(3, 1)`. An error if a size is zero or `groups` does not divide both
    /// channel counts.
    pub fn new(
        in_channels: usize,
        out_channels: usize,
        kernel: impl ToUsize2,
        config: Conv2dConfig,
        vb: VarBuilder,
    ) -> Result<Self> {
        let (kh, kw) = kernel.to_usize2();
        let path = vb.prefix();
        let site = Site::new("Conv2d", &path);
        site.positive(&[
            ("in_channels", in_channels),
            ("out_channels", out_channels),
            ("kernel", kh.min(kw)),
            ("stride", config.stride[0].min(config.stride[1])),
            ("dilation", config.dilation[0].min(config.dilation[1])),
            ("groups", config.groups),
        ])?;
        site.multiple("in_channels", in_channels, "groups", config.groups)?;
        site.multiple("out_channels", out_channels, "groups", config.groups)?;
        let shape = (out_channels, in_channels / config.groups, kh, kw);
        let default = init::uniform_fan_in(shape.1 * kh * kw);
        let weight = vb.get_with_hints(shape, "weight", config.weight_init.unwrap_or(default))?;
        let bias = if config.bias {
            Some(vb.get_with_hints(out_channels, "bias", default)?)
        } else {
            None
        };
        let Conv2dConfig {
            stride,
            padding,
            dilation,
            groups,
            ..
        } = config;
        Ok(Self {
            weight,
            bias,
            config: ops::Conv2dConfig {
                stride,
                padding,
                dilation,
                groups,
            },
            path,
        })
    }

    /// The weight, `[O, C / groups, kh, kw]`.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, `[O]`.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }
}

impl Module for Conv2d {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        ops::conv2d(xs, &self.weight, self.bias.as_ref(), &self.config)
    }
}
