#![doc = include_str!("../README.md")]

pub mod error;
pub mod init;
pub mod layers;
pub mod models;
pub mod summary;

pub use error::Error;
pub use layers::{
    Activation, AdaptiveAvgPool2d, AdaptiveMaxPool2d, Attention, AttentionConfig, AvgPool2d,
    BasicBlock, BatchNorm2d, BatchNormConfig, Bottleneck, Conv2d, Conv2dConfig, ConvNormAct,
    ConvNormActConfig, DropPath, Dropout, Embedding, Flatten, GroupNorm, Gru, Layer, LayerNorm,
    LayerScale, Linear, LinearConfig, Lstm, LstmState, MaxPool2d, Mlp, MlpConfig, PatchEmbed,
    PatchEmbedConfig, RecurrentConfig, Residual, Sequential, ViTBlock, ViTBlockConfig,
};
pub use models::{
    AlexNet, AlexNetConfig, LeNet5, LeNet5Config, ResNet, ResNetConfig, SimpleCifar,
    SimpleCifarConfig, Stem, VisionTransformer, VisionTransformerConfig,
};
pub use summary::{Summary, summary, summary_of};
