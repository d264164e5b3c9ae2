//! The transformer block of a ViT.

use candle_core::{Result, Tensor};
use candle_nn::{Module, ModuleT, VarBuilder};
use tallow_tensor::{ops, scope};

use super::{Attention, AttentionConfig, DropPath, LayerNorm, LayerScale, Mlp, MlpConfig};
use crate::error::Site;

/// Settings of [`ViTBlock`], with the defaults of a ViT in timm.
#[derive(Debug, Clone, Copy)]
pub struct ViTBlockConfig {
    /// The attention's settings.
    pub attention: AttentionConfig,
    /// Hidden size of the perceptron over the token size; 4.
    pub mlp_ratio: f64,
    /// The perceptron's settings.
    pub mlp: MlpConfig,
    /// Start of a [`LayerScale`] on both branches; none by default.
    pub layer_scale: Option<f64>,
    /// Probability of dropping a branch in training, see [`DropPath`]; 0.
    pub drop_path: f64,
    /// Added to the variance in the layer norms; 1e-6.
    pub norm_eps: f64,
}

impl Default for ViTBlockConfig {
    fn default() -> Self {
        Self {
            attention: AttentionConfig::default(),
            mlp_ratio: 4.0,
            mlp: MlpConfig::default(),
            layer_scale: None,
            drop_path: 0.0,
            norm_eps: 1e-6,
        }
    }
}

/// timm's `Block`: `x += drop_path(ls1(attn(norm1(x))))`, then `x += drop_path(ls2(mlp(norm2(x))))`, `[N, L, C]` to the
/// same (Dosovitskiy et al. 2021).
///
/// Parameters: those of the parts under `norm1`, `attn`, `ls1`, `norm2`, `mlp`, `ls2`.
#[derive(Debug, Clone)]
pub struct ViTBlock {
    norm1: LayerNorm,
    attn: Attention,
    ls1: Option<LayerScale>,
    norm2: LayerNorm,
    mlp: Mlp,
    ls2: Option<LayerScale>,
    drop_path: DropPath,
    path: String,
}

impl ViTBlock {
    /// Errors are those of the parts; `mlp_ratio` must be above zero.
    pub fn new(dim: usize, config: ViTBlockConfig, vb: VarBuilder) -> Result<Self> {
        let path = vb.prefix();
        Site::new("ViTBlock", &path).above_zero("mlp_ratio", config.mlp_ratio)?;
        let hidden = (dim as f64 * config.mlp_ratio) as usize;
        let scale = |name| {
            config
                .layer_scale
                .map(|start| LayerScale::new(dim, start, vb.pp(name)))
                .transpose()
        };
        Ok(Self {
            norm1: LayerNorm::new(dim, config.norm_eps, vb.pp("norm1"))?,
            attn: Attention::new(dim, config.attention, vb.pp("attn"))?,
            ls1: scale("ls1")?,
            norm2: LayerNorm::new(dim, config.norm_eps, vb.pp("norm2"))?,
            mlp: Mlp::new(dim, hidden, config.mlp, vb.pp("mlp"))?,
            ls2: scale("ls2")?,
            drop_path: DropPath::new(config.drop_path)?,
            path,
        })
    }

    fn add_branch(
        &self,
        xs: &Tensor,
        branch: Tensor,
        scale: Option<&LayerScale>,
        train: bool,
    ) -> Result<Tensor> {
        let branch = match scale {
            Some(scale) => scale.forward(&branch)?,
            None => branch,
        };
        ops::add(xs, &self.drop_path.forward_t(&branch, train)?)
    }
}

impl ModuleT for ViTBlock {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let branch = self.attn.forward_t(&self.norm1.forward(xs)?, train)?;
        let xs = self.add_branch(xs, branch, self.ls1.as_ref(), train)?;
        let branch = self.mlp.forward_t(&self.norm2.forward(&xs)?, train)?;
        self.add_branch(&xs, branch, self.ls2.as_ref(), train)
    }
}
