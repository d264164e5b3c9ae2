//! Vision models, one a file. Names of parameters are those of the original in torchvision or timm, so that its state
//! dict loads as it is. Images are `[N, C, H, W]`, results are logits `[N, K]`.

mod alexnet;
mod lenet;
mod resnet;
mod simple_cifar;
mod vit;

pub use alexnet::{AlexNet, AlexNetConfig};
pub use lenet::{LeNet5, LeNet5Config};
pub use resnet::{ResNet, ResNetBlock, ResNetConfig, Stem};
pub use simple_cifar::{SimpleCifar, SimpleCifarConfig};
pub use vit::{VisionTransformer, VisionTransformerConfig};
