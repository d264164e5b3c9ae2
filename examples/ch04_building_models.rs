//! Chapter 4: building models. Layers, a block of one's own, a look at the whole as a table and as a graph, weights in a
//! file, and a part that is frozen.
//!
//!     cargo run --release --example ch04_building_models
//!
//! Builds a network of 77,498 parameters around a squeeze-and-excitation block, captures it without a graph break,
//! gives the same outputs from a file, and trains its head alone for three steps, in less than a second.

use anyhow::{Result, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::{Module, ModuleT, VarBuilder, VarMap};
use tallow::nn::{
    Activation, AdaptiveAvgPool2d, ConvNormAct, ConvNormActConfig, Dropout, Flatten, Linear,
    Sequential, summary_of,
};
use tallow::prelude::*;

/// Squeeze and excitation (Hu et al. 2018): every channel is scaled by what a small network makes of all channels'
/// means. `[N, C, H, W]` to the same shape.
///
/// A layer is its parameters plus a forward pass. It keeps its path and enters it, so that errors, graphs and profiles
/// can name it; it computes with `ops`, so that it has right gradients and can be captured.
struct SqueezeExcite {
    squeeze: Linear,
    excite: Linear,
    path: String,
}

impl SqueezeExcite {
    fn new(channels: usize, reduction: usize, vb: VarBuilder) -> candle_core::Result<Self> {
        Ok(Self {
            squeeze: Linear::new(channels, channels / reduction, vb.pp("squeeze"))?,
            excite: Linear::new(channels / reduction, channels, vb.pp("excite"))?,
            path: vb.prefix(),
        })
    }
}

impl Module for SqueezeExcite {
    fn forward(&self, xs: &Tensor) -> candle_core::Result<Tensor> {
        let _scope = scope::enter(&self.path);
        let means = ops::mean(xs, &[2, 3], false)?; // [N, C]
        let hidden = ops::relu(&self.squeeze.forward(&means)?)?;
        let scales = ops::sigmoid(&self.excite.forward(&hidden)?)?;
        let (samples, channels) = scales.dims2()?;
        ops::mul(xs, &ops::reshape(&scales, &[samples, channels, 1, 1])?)
    }
}

/// Three stages of convolution, norm and activation, with the block above after the second.
struct Net {
    features: Sequential,
    head: Sequential,
}

impl Net {
    fn new(classes: usize, vb: VarBuilder) -> candle_core::Result<Self> {
        let stage = |stride| ConvNormActConfig {
            stride,
            activation: Some(Activation::Relu6),
            ..Default::default()
        };
        // A sequence numbers its layers, as PyTorch does: features.0.conv.weight, features.0.bn.weight, ...
        let features = Sequential::builder(vb.pp("features"))
            .layer(|vb| ConvNormAct::new(1, 32, stage(1), vb))?
            .layer(|vb| ConvNormAct::new(32, 64, stage(2), vb))?
            .layer(|vb| SqueezeExcite::new(64, 4, vb))?
            .layer(|vb| ConvNormAct::new(64, 96, stage(2), vb))?
            .build();
        let head = Sequential::builder(vb.pp("head"))
            .then(AdaptiveAvgPool2d::new(1))
            .then(Flatten)
            .then(Dropout::new(0.1)?)
            .layer(|vb| Linear::new(96, classes, vb))?
            .build();
        Ok(Self { features, head })
    }
}

impl ModuleT for Net {
    fn forward_t(&self, xs: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        self.head
            .forward_t(&self.features.forward_t(xs, train)?, train)
    }
}

fn main() -> Result<()> {
    let _profile = tallow::profile::from_env()?;
    // Parameters come into being when the model asks for them. Their first values depend on the seed and the name.
    let params = Params::f32_cpu();
    let model = Net::new(10, params.builder())?;
    println!(
        "{} parameters, such as {:?}\n",
        params.count(),
        &params.names()[..3]
    );
    let images = Tensor::arange(0f32, 1568., &Device::Cpu)?.reshape((2, 1, 28, 28))?;
    let images = (images / 1568.)?;
    println!("{}", summary_of(&model, &images, Some(&params))?);

    // The same model in a candle program that knows nothing of Tallow's parameters.
    let varmap = VarMap::new();
    let plain = Net::new(
        10,
        VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu),
    )?;
    println!("logits {:?}\n", plain.forward_t(&images, false)?.dims());

    capture_it(&model, &images, &params)?;
    save_and_load(&model, &images, &params)?;
    train_the_head(model, params)
}

/// A capture runs the model once and writes down each operation.
fn capture_it(model: &Net, images: &Tensor, params: &Params) -> Result<()> {
    let graph = capture_model(model, images, false, Some(params))?;
    let text = graph.to_string();
    let lines: Vec<&str> = text.lines().collect();
    println!("the graph has {} nodes; it ends with", graph.nodes.len());
    println!("{}\n", lines[lines.len().saturating_sub(4)..].join("\n"));

    // A raw candle operation can't be written down. It is found and named, never guessed.
    let broken = capture(|xs| ops::relu(&xs.sqr()?), images);
    println!(
        "{}\n",
        broken.err().map(|e| e.to_string()).unwrap_or_default()
    );
    Ok(())
}

/// Weights are safetensors with the names of the parameters, for Python as well.
fn save_and_load(model: &Net, images: &Tensor, params: &Params) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("net.safetensors");
    params.save(&path)?;

    let others = Params::new(7, DType::F32, &Device::Cpu);
    let copy = Net::new(10, others.builder())?;
    let logits = |model: &Net| model.forward_t(images, false)?.to_vec2::<f32>();
    ensure!(
        logits(model)? != logits(&copy)?,
        "another seed, other values"
    );
    let report = others.load(&path, Strict::Yes)?;
    ensure!(logits(model)? == logits(&copy)?);
    println!(
        "{} values from the file, and the same logits",
        report.loaded.len()
    );

    // Another model is refused, with what differs.
    let smaller = Params::f32_cpu();
    Net::new(5, smaller.builder())?;
    let refused = smaller.load(&path, Strict::Yes).err();
    println!("{}\n", refused.map(|e| e.to_string()).unwrap_or_default());
    Ok(())
}

/// Frozen parameters stay as they are; the rest trains.
fn train_the_head(model: Net, params: Params) -> Result<()> {
    let frozen = params.freeze("features");
    println!(
        "{frozen} parameters frozen, {} left to train",
        params.trainable().len()
    );
    let before = params.to_tensors()?;

    let (train, _) = datasets::fashion_mnist_subset()?;
    let train = train.take(48).loader(LoaderConfig::train(16))?;
    let mut trainer = Trainer::builder(model, params.clone()).build()?;
    trainer.fit(&train, None)?;

    for (name, after) in params.to_tensors()? {
        let values = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
        let moved = values(&before[&name])? != values(&after)?;
        // Buffers are no parameters: batch norm follows the data in a frozen part too.
        let buffer = name.contains("running");
        ensure!(moved == (buffer || name.starts_with("head")), "{name}");
    }
    println!("only the head has moved");
    Ok(())
}
