//! The initialisers of PyTorch, torchvision and timm as candle [`Init`] values.
//!
//! Which layer uses which is said at the layer; where the random numbers come from is the `VarBuilder`'s business
//! (`tallow_tensor::params` draws them from a stream keyed by the parameter's name).

use candle_nn::Init;
use candle_nn::init::{FanInOut, NonLinearity, NormalOrUniform};

/// Uniform in `±1 / sqrt(fan_in)`: what `nn.Linear` and `nn.Conv2d` use for weight and bias
/// (`kaiming_uniform_(a = sqrt(5))`), and, with `hidden_size` for `fan_in`, `nn.LSTM` and `nn.GRU`.
///
/// ```
/// # use candle_nn::Init;
/// assert!(matches!(tallow_nn::init::uniform_fan_in(16), Init::Uniform { lo: -0.25, up: 0.25 }));
/// ```
pub fn uniform_fan_in(fan_in: usize) -> Init {
    let bound = 1.0 / (fan_in.max(1) as f64).sqrt();
    Init::Uniform {
        lo: -bound,
        up: bound,
    }
}

/// Normal with standard deviation `sqrt(2 / fan_out)`, for convolutions before a ReLU: torchvision's ResNets use
/// `kaiming_normal_(mode = "fan_out", nonlinearity = "relu")` (He et al. 2015).
pub const KAIMING_NORMAL_FAN_OUT: Init = Init::Kaiming {
    dist: NormalOrUniform::Normal,
    fan: FanInOut::FanOut,
    non_linearity: NonLinearity::ReLU,
};

/// Normal with standard deviation 0.02, for the linear layers and position embedding of a ViT: timm's
/// `trunc_normal_(std = 0.02)`, whose cut at ±2 is a hundred standard deviations away.
pub const NORMAL_002: Init = Init::Randn {
    mean: 0.0,
    stdev: 0.02,
};

/// Normal with standard deviation 1: `nn.Embedding`.
pub const STANDARD_NORMAL: Init = Init::Randn {
    mean: 0.0,
    stdev: 1.0,
};
