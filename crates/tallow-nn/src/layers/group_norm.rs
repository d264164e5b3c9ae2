//! Group normalisation.

use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};
use tallow_tensor::{ops, scope};

use crate::error::Site;

/// `nn.GroupNorm`: normalises each sample over each of `groups` blocks of channels and their pixels, then
/// `* weight + bias` a channel; `[N, C, H, W]` to the same (Wu and He 2018). PyTorch's `eps` is 1e-5.
///
/// Parameters: `weight [C]`, `bias [C]`.
#[derive(Debug, Clone)]
pub struct GroupNorm {
    weight: Tensor,
    bias: Tensor,
    groups: usize,
    eps: f64,
    path: String,
}

impl GroupNorm {
    /// An error if a size is zero, `groups` does not divide `channels`, or `eps` is not above zero.
    pub fn new(groups: usize, channels: usize, eps: f64, vb: VarBuilder) -> Result<Self> {
        let path = vb.prefix();
        let site = Site::new("GroupNorm", &path);
        site.positive(&[("groups", groups), ("channels", channels)])?;
        site.multiple("channels", channels, "groups", groups)?;
        site.above_zero("eps", eps)?;
        let weight = vb.get_with_hints(channels, "weight", candle_nn::init::ONE)?;
        let bias = vb.get_with_hints(channels, "bias", candle_nn::init::ZERO)?;
        Ok(Self {
            weight,
            bias,
            groups,
            eps,
            path,
        })
    }
}

impl Module for GroupNorm {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        ops::group_norm(xs, &self.weight, &self.bias, self.groups, self.eps)
    }
}
