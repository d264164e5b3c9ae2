//! Images to tokens.

use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};
use tallow_tensor::{ops, scope};

use super::{Conv2d, Conv2dConfig};
use crate::error::Site;

/// Settings of [`PatchEmbed`], with timm's defaults.
#[derive(Debug, Clone, Copy)]
pub struct PatchEmbedConfig {
    /// Side of the square image; 224.
    pub image_size: usize,
    /// Side of a patch; 16.
    pub patch_size: usize,
    /// Channels of the image; 3.
    pub in_channels: usize,
    /// Size of a token; 768.
    pub embed_dim: usize,
}

impl Default for PatchEmbedConfig {
    fn default() -> Self {
        Self {
            image_size: 224,
            patch_size: 16,
            in_channels: 3,
            embed_dim: 768,
        }
    }
}

/// timm's `PatchEmbed`: a convolution whose stride is its kernel cuts the image into patches, row by row,
/// `[N, C, S, S]` to `[N, (S / patch)², D]` (Dosovitskiy et al. 2021).
///
/// Parameters: `proj.weight [D, C, patch, patch]`, `proj.bias [D]`.
#[derive(Debug, Clone)]
pub struct PatchEmbed {
    proj: Conv2d,
    config: PatchEmbedConfig,
    path: String,
}

impl PatchEmbed {
    /// An error if a size is zero or the patches do not tile the image.
    pub fn new(config: PatchEmbedConfig, vb: VarBuilder) -> Result<Self> {
        let path = vb.prefix();
        let PatchEmbedConfig {
            image_size,
            patch_size,
            in_channels,
            embed_dim,
        } = config;
        let site = Site::new("PatchEmbed", &path);
        site.positive(&[
            ("image_size", image_size),
            ("patch_size", patch_size),
            ("embed_dim", embed_dim),
        ])?;
        site.multiple("image_size", image_size, "patch_size", patch_size)?;
        let conv = Conv2dConfig::default().stride(patch_size);
        let proj = Conv2d::new(in_channels, embed_dim, patch_size, conv, vb.pp("proj"))?;
        Ok(Self { proj, config, path })
    }

    /// How many tokens an image gives.
    pub fn num_patches(&self) -> usize {
        (self.config.image_size / self.config.patch_size).pow(2)
    }
}

impl Module for PatchEmbed {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let size = self.config.image_size;
        if !matches!(*xs.dims(), [_, _, h, w] if h == size && w == size) {
            let found = format!("{:?}", xs.dims());
            let expected = format!(
                "[N, {}, {size}, {size}]: resize the images",
                self.config.in_channels
            );
            return Site::new("PatchEmbed", &self.path).input(found, expected);
        }
        ops::transpose(&ops::flatten(&self.proj.forward(xs)?, 2)?, 1, 2)
    }
}
