//! Batch normalisation of image features.

use candle_core::{Result, Tensor, Var};
use candle_nn::{Init, ModuleT, VarBuilder};
use tallow_tensor::{ops, params, scope};

use crate::error::Site;

/// Settings of [`BatchNorm2d`], with the defaults of `nn.BatchNorm2d`.
#[derive(Debug, Clone, Copy)]
pub struct BatchNormConfig {
    /// Added to the variance; 1e-5.
    pub eps: f64,
    /// Weight of the new batch in the running statistics; 0.1.
    pub momentum: f64,
    /// How the weight starts; ones. Zeros make a residual branch start as nothing.
    pub weight_init: Init,
}

impl Default for BatchNormConfig {
    fn default() -> Self {
        Self {
            eps: 1e-5,
            momentum: 0.1,
            weight_init: candle_nn::init::ONE,
        }
    }
}

/// `nn.BatchNorm2d`: `y = (x - mean) / sqrt(var + eps) * weight + bias` a channel, `[N, C, H, W]` to the same
/// (Ioffe and Szegedy 2015).
///
/// In training, mean and biased variance are the batch's, and the running statistics move towards them by
/// `momentum`, the variance unbiased. In evaluation they are the running statistics, and in training as well where
/// [`Params::freeze_batch_norm`](tallow_tensor::Params::freeze_batch_norm) froze them.
///
/// Parameters: `weight [C]`, `bias [C]`; buffers: `running_mean [C]`, `running_var [C]`. The `num_batches_tracked` of a
/// PyTorch state dict is not needed, since momentum is a number.
#[derive(Debug, Clone)]
pub struct BatchNorm2d {
    weight: Tensor,
    bias: Tensor,
    running_mean: Var,
    running_var: Var,
    config: BatchNormConfig,
    path: String,
}

impl BatchNorm2d {
    /// An error if `channels` is zero, `eps` is not above zero or `momentum` is outside 0 to 1.
    pub fn new(channels: usize, config: BatchNormConfig, vb: VarBuilder) -> Result<Self> {
        let path = vb.prefix();
        let site = Site::new("BatchNorm2d", &path);
        site.positive(&[("channels", channels)])?;
        site.above_zero("eps", config.eps)?;
        if !(0.0..=1.0).contains(&config.momentum) {
            return site.setting("momentum", config.momentum, "from 0 to 1");
        }
        let running_mean = params::buffer(&vb, channels, "running_mean", 0.0)?;
        let running_var = params::buffer(&vb, channels, "running_var", 1.0)?;
        Ok(Self {
            weight: vb.get_with_hints(channels, "weight", config.weight_init)?,
            bias: vb.get_with_hints(channels, "bias", candle_nn::init::ZERO)?,
            // shares the variable of a trainable builder; a builder over a file has none, so training gets its own
            running_mean: Var::from_tensor(&running_mean)?,
            running_var: Var::from_tensor(&running_var)?,
            config,
            path,
        })
    }

    /// The scale, `[C]`.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The shift, `[C]`.
    pub fn bias(&self) -> &Tensor {
        &self.bias
    }

    /// The running mean, `[C]`.
    pub fn running_mean(&self) -> &Tensor {
        self.running_mean.as_tensor()
    }

    /// The running variance, `[C]`.
    pub fn running_var(&self) -> &Tensor {
        self.running_var.as_tensor()
    }
}

impl ModuleT for BatchNorm2d {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let args = ops::BatchNormArgs {
            weight: &self.weight,
            bias: &self.bias,
            running_mean: self.running_mean.as_tensor(),
            running_var: self.running_var.as_tensor(),
            eps: self.config.eps,
            momentum: self.config.momentum,
        };
        ops::batch_norm(xs, &args, train)
    }
}
