//! Vision transformers.

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, ModuleT, VarBuilder};
use tallow_tensor::{ops, scope};

use crate::error::Site;
use crate::init;
use crate::layers::{
    DropPath, Dropout, LayerNorm, Linear, LinearConfig, PatchEmbed, PatchEmbedConfig, Sequential,
    ViTBlock, ViTBlockConfig,
};

/// Settings of [`VisionTransformer`].
#[derive(Debug, Clone, Copy)]
pub struct VisionTransformerConfig {
    /// Image, patches and token size.
    pub patch_embed: PatchEmbedConfig,
    /// Classes.
    pub num_classes: usize,
    /// Transformer blocks.
    pub depth: usize,
    /// Settings of each block; its `drop_path` is that of the last block, falling linearly to zero at the first.
    pub block: ViTBlockConfig,
    /// Dropout after the position embedding and before the head.
    pub dropout: f64,
}

impl VisionTransformerConfig {
    /// timm's `vit_tiny_patch16_224`: 12 blocks of 192, 3 heads; 5,717,416 parameters for 1000 classes.
    pub fn tiny() -> Self {
        Self::patch16_224(192, 3)
    }

    /// timm's `vit_small_patch16_224`: 12 blocks of 384, 6 heads; 22,050,664 parameters for 1000 classes.
    pub fn small() -> Self {
        Self::patch16_224(384, 6)
    }

    fn patch16_224(embed_dim: usize, num_heads: usize) -> Self {
        let mut block = ViTBlockConfig::default();
        block.attention.num_heads = num_heads;
        Self {
            patch_embed: PatchEmbedConfig {
                embed_dim,
                ..Default::default()
            },
            num_classes: 1000,
            depth: 12,
            block,
            dropout: 0.0,
        }
    }
}

/// timm's `VisionTransformer` (Dosovitskiy et al. 2021): patches, class token, learned position embedding, blocks, layer
/// norm, and a linear head on the class token; `[N, C, S, S]` to `[N, K]`.
///
/// Parameters: `cls_token [1, 1, D]`, `pos_embed [1, 1 + patches, D]`, `patch_embed.proj`, `blocks.{i}.*`, `norm`, `head`, as
/// in timm's state dict.
pub struct VisionTransformer {
    patch_embed: PatchEmbed,
    cls_token: Tensor,
    pos_embed: Tensor,
    dropout: Dropout,
    blocks: Sequential,
    norm: LayerNorm,
    head: Linear,
    path: String,
}

impl VisionTransformer {
    /// ViT-Ti/16 for images of 3x224x224.
    pub fn tiny(num_classes: usize, vb: VarBuilder) -> Result<Self> {
        Self::from_config(
            VisionTransformerConfig {
                num_classes,
                ..VisionTransformerConfig::tiny()
            },
            vb,
        )
    }

    /// ViT-S/16 for images of 3x224x224.
    pub fn small(num_classes: usize, vb: VarBuilder) -> Result<Self> {
        Self::from_config(
            VisionTransformerConfig {
                num_classes,
                ..VisionTransformerConfig::small()
            },
            vb,
        )
    }

    /// With these settings. An error if a size is zero, the patches do not tile the image, the heads do not divide the
    /// token size, or a dropout is not in `0..1`.
    pub fn from_config(config: VisionTransformerConfig, vb: VarBuilder) -> Result<Self> {
        let path = vb.prefix();
        let site = Site::new("VisionTransformer", &path);
        site.positive(&[("depth", config.depth), ("num_classes", config.num_classes)])?;
        site.drop_rate("drop_path", config.block.drop_path)?;
        let dim = config.patch_embed.embed_dim;
        let patch_embed = PatchEmbed::new(config.patch_embed, vb.pp("patch_embed"))?;
        let tokens = 1 + patch_embed.num_patches();
        let mut blocks = Sequential::builder(vb.pp("blocks"));
        for drop_path in DropPath::linear_rates(config.block.drop_path, config.depth) {
            blocks = blocks.layer(|vb| {
                ViTBlock::new(
                    dim,
                    ViTBlockConfig {
                        drop_path,
                        ..config.block
                    },
                    vb,
                )
            })?;
        }
        Ok(Self {
            patch_embed,
            cls_token: vb.get_with_hints(
                (1, 1, dim),
                "cls_token",
                Init::Randn {
                    mean: 0.0,
                    stdev: 1e-6,
                },
            )?,
            pos_embed: vb.get_with_hints((1, tokens, dim), "pos_embed", init::NORMAL_002)?,
            dropout: Dropout::new(config.dropout)?,
            blocks: blocks.build(),
            norm: LayerNorm::new(dim, config.block.norm_eps, vb.pp("norm"))?,
            head: Linear::from_config(
                dim,
                config.num_classes,
                LinearConfig::vit(true),
                vb.pp("head"),
            )?,
            path,
        })
    }

    /// Patches and class token with their positions: `[N, C, S, S]` to `[N, 1 + patches, D]`.
    fn embed(&self, xs: &Tensor) -> Result<Tensor> {
        let patches = self.patch_embed.forward(xs)?;
        let (batch, _, dim) = patches.dims3()?;
        let cls = ops::expand(&self.cls_token, &[batch, 1, dim])?;
        ops::add(&ops::concat(&[&cls, &patches], 1)?, &self.pos_embed)
    }
}

impl ModuleT for VisionTransformer {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let xs = self.dropout.forward_t(&self.embed(xs)?, train)?;
        let xs = self.blocks.forward_t(&xs, train)?;
        // the head reads the class token alone, and a layer norm sees one token at a time
        let (batch, _, dim) = xs.dims3()?;
        let token = ops::reshape(&ops::slice(&xs, 1, 0, 1)?, &[batch, dim])?;
        let token = self.dropout.forward_t(&self.norm.forward(&token)?, train)?;
        self.head.forward(&token)
    }
}
