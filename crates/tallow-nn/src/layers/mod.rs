//! Layers, one a file: configuration with PyTorch's defaults, constructor from a `VarBuilder`, forward.
//!
//! A layer stores the prefix of its `VarBuilder` as its path and enters that scope in `forward`, so that errors,
//! captured graphs and profiles name it. Layers for which training makes no difference implement
//! [`candle_nn::Module`], which makes them [`candle_nn::ModuleT`] as well; the others implement `ModuleT` alone.

mod activation;
mod adaptive_pool2d;
mod attention;
mod avg_pool2d;
mod basic_block;
mod batch_norm2d;
mod bottleneck;
mod conv2d;
mod conv_norm_act;
mod drop_path;
mod dropout;
mod embedding;
mod flatten;
mod group_norm;
mod gru;
mod layer;
mod layer_norm;
mod layer_scale;
mod linear;
mod lstm;
mod max_pool2d;
mod mlp;
mod patch_embed;
mod recurrent;
mod residual;
mod sequential;
mod vit_block;

pub use activation::Activation;
pub use adaptive_pool2d::{AdaptiveAvgPool2d, AdaptiveMaxPool2d};
pub use attention::{Attention, AttentionConfig};
pub use avg_pool2d::AvgPool2d;
pub use basic_block::BasicBlock;
pub use batch_norm2d::{BatchNorm2d, BatchNormConfig};
pub use bottleneck::Bottleneck;
pub use conv_norm_act::{ConvNormAct, ConvNormActConfig};
pub use conv2d::{Conv2d, Conv2dConfig};
pub use drop_path::DropPath;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use flatten::Flatten;
pub use group_norm::GroupNorm;
pub use gru::Gru;
pub use layer::Layer;
pub use layer_norm::LayerNorm;
pub use layer_scale::LayerScale;
pub use linear::{Linear, LinearConfig};
pub use lstm::{Lstm, LstmState};
pub use max_pool2d::MaxPool2d;
pub use mlp::{Mlp, MlpConfig};
pub use patch_embed::{PatchEmbed, PatchEmbedConfig};
pub use recurrent::RecurrentConfig;
pub use residual::Residual;
pub use sequential::{Sequential, SequentialBuilder};
pub use vit_block::{ViTBlock, ViTBlockConfig};
