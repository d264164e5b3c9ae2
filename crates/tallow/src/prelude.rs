//! What most programs that train a model use: `use tallow::prelude::*;`.
//!
//! candle's own names (`Tensor`, `Device`, `ModuleT`, `VarBuilder`) are not here: a program has candle at hand anyway.

pub use tallow_compile::{Compiled, Mode, Options as CompileOptions, compile, explain};
pub use tallow_data::{
    Augment, Batch, BatchSource, ImageDataset, LoaderConfig, Normalize, datasets,
};
pub use tallow_nn::{AlexNet, LeNet5, ResNet, SimpleCifar, Stem, VisionTransformer, summary};
pub use tallow_tensor::params::{NameMap, Strict};
pub use tallow_tensor::{Params, capture, capture_model, ops, scope};
pub use tallow_train::{
    AdamW, Checkpointing, CrossEntropyConfig, History, Hook, HookContext, LrSchedule, Optimizer,
    ProgressDisplay, Sgd, Trainer, metrics,
};
