//! Multi-head self-attention.

use candle_core::{Result, Tensor};
use candle_nn::{Module, ModuleT, VarBuilder};
use tallow_tensor::{ops, scope};

use super::{Dropout, LayerNorm, Linear, LinearConfig};
use crate::error::Site;

/// Settings of [`Attention`], with the defaults of a ViT in timm.
#[derive(Debug, Clone, Copy)]
pub struct AttentionConfig {
    /// Heads that attend independently; 8.
    pub num_heads: usize,
    /// Whether queries, keys and values have a bias; true.
    pub qkv_bias: bool,
    /// Whether queries and keys pass a layer norm (eps 1e-6) each; false.
    pub qk_norm: bool,
    /// Dropout of attention weights; 0.
    pub attention_dropout: f64,
    /// Dropout of the output; 0.
    pub projection_dropout: f64,
}

impl Default for AttentionConfig {
    fn default() -> Self {
        Self {
            num_heads: 8,
            qkv_bias: true,
            qk_norm: false,
            attention_dropout: 0.0,
            projection_dropout: 0.0,
        }
    }
}

/// timm's `Attention`: `proj(softmax(q kᵀ / sqrt(d)) v)` a head of size `d = C / num_heads`, `[N, L, C]` to the same
/// (Vaswani et al. 2017).
///
/// Parameters: `qkv.weight [3 C, C]`, `qkv.bias`, `proj.weight [C, C]`, `proj.bias`, and with `qk_norm` `q_norm.*` and
/// `k_norm.*` of `[d]`.
#[derive(Debug, Clone)]
pub struct Attention {
    qkv: Linear,
    norms: Option<[LayerNorm; 2]>,
    proj: Linear,
    attention_dropout: Dropout,
    projection_dropout: Dropout,
    num_heads: usize,
    head_dim: usize,
    path: String,
}

impl Attention {
    /// An error if a size is zero, the heads do not divide `dim`, or a dropout is not in `0..1`.
    pub fn new(dim: usize, config: AttentionConfig, vb: VarBuilder) -> Result<Self> {
        let path = vb.prefix();
        let site = Site::new("Attention", &path);
        site.positive(&[("dim", dim), ("num_heads", config.num_heads)])?;
        site.multiple("dim", dim, "num_heads", config.num_heads)?;
        site.drop_rate("attention_dropout", config.attention_dropout)?;
        site.drop_rate("projection_dropout", config.projection_dropout)?;
        let head_dim = dim / config.num_heads;
        let norm = |name| LayerNorm::new(head_dim, 1e-6, vb.pp(name));
        Ok(Self {
            qkv: Linear::from_config(
                dim,
                3 * dim,
                LinearConfig::vit(config.qkv_bias),
                vb.pp("qkv"),
            )?,
            norms: if config.qk_norm {
                Some([norm("q_norm")?, norm("k_norm")?])
            } else {
                None
            },
            proj: Linear::from_config(dim, dim, LinearConfig::vit(true), vb.pp("proj"))?,
            attention_dropout: Dropout::new(config.attention_dropout)?,
            projection_dropout: Dropout::new(config.projection_dropout)?,
            num_heads: config.num_heads,
            head_dim,
            path,
        })
    }

    /// Queries, keys and values, `[N, heads, L, d]` each.
    fn project(&self, xs: &Tensor, batch: usize, length: usize) -> Result<[Tensor; 3]> {
        let (heads, dim) = (self.num_heads, self.head_dim);
        let qkv = ops::reshape(&self.qkv.forward(xs)?, &[batch, length, 3, heads, dim])?;
        let qkv = ops::permute(&qkv, &[2, 0, 3, 1, 4])?;
        let part = |i| {
            ops::reshape(
                &ops::slice(&qkv, 0, i, i + 1)?,
                &[batch, heads, length, dim],
            )
        };
        let [q, k, v] = [part(0)?, part(1)?, part(2)?];
        match &self.norms {
            Some([q_norm, k_norm]) => Ok([q_norm.forward(&q)?, k_norm.forward(&k)?, v]),
            None => Ok([q, k, v]),
        }
    }

    /// The weighted values, `[N, heads, L, d]`. With dropout of the weights these have to exist, so no fused operation.
    fn attend(&self, [q, k, v]: [Tensor; 3], train: bool) -> Result<Tensor> {
        let scale = 1.0 / (self.head_dim as f64).sqrt();
        if !train || self.attention_dropout.p() == 0.0 {
            return ops::attention(&q, &k, &v, scale);
        }
        let scores = ops::matmul(&ops::mul_scalar(&q, scale)?, &ops::transpose(&k, 2, 3)?)?;
        let weights = self
            .attention_dropout
            .forward_t(&ops::softmax(&scores, 3)?, train)?;
        ops::matmul(&weights, &v)
    }
}

impl ModuleT for Attention {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let &[batch, length, dim] = xs.dims() else {
            let found = format!("{:?}", xs.dims());
            return Site::new("Attention", &self.path)
                .input(found, "[N, L, C]: tokens of a batch of sequences");
        };
        let ys = self.attend(self.project(xs, batch, length)?, train)?;
        let ys = ops::reshape(&ops::transpose(&ys, 1, 2)?, &[batch, length, dim])?;
        self.projection_dropout
            .forward_t(&self.proj.forward(&ys)?, train)
    }
}
