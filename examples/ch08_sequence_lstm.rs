//! Chapter 8: a sequence. An LSTM reads an image row by row, 28 steps of 28 pixels, forwards and backwards, and a linear layer
//! names what it has read; eager and compiled, where the steps in time become one plan.
//!
//!     cargo run --release --example ch08_sequence_lstm
//!
//! Names four of five test images rightly after three epochs, in about 15 s. Its parameters are those of PyTorch's
//! `nn.LSTM(28, 64, batch_first=True, bidirectional=True)`, so that a state dict from there loads.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::{Module, ModuleT, VarBuilder};
use tallow::nn::{Linear, Lstm, RecurrentConfig, summary_of};
use tallow::prelude::*;

const HIDDEN: usize = 64;
const EPOCHS: u64 = 3;
const BATCH: usize = 50;

/// `[N, 1, 28, 28]` to `[N, 10]`.
struct RowReader {
    lstm: Lstm,
    head: Linear,
}

impl RowReader {
    fn new(vb: VarBuilder) -> candle_core::Result<Self> {
        let config = RecurrentConfig {
            batch_first: true,
            bidirectional: true,
            ..Default::default()
        };
        Ok(Self {
            lstm: Lstm::new(28, HIDDEN, config, vb.pp("lstm"))?,
            head: Linear::new(2 * HIDDEN, 10, vb.pp("head"))?,
        })
    }
}

impl ModuleT for RowReader {
    fn forward_t(&self, images: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let count = images.dims()[0];
        let rows = ops::reshape(images, &[count, 28, 28])?; // [N, L, C]
        let (_, last) = self.lstm.forward_state(&rows, None, train)?;
        // What each direction had read at its end: h_n [2, N, H] to [N, 2 H].
        let last = ops::reshape(&ops::transpose(&last.h, 0, 1)?, &[count, 2 * HIDDEN])?;
        self.head.forward(&last)
    }
}

fn main() -> Result<()> {
    let (train, test) = datasets::fashion_mnist_subset()?;
    let normalize = Some(train.channel_stats()?);
    let train = train.take(4000).loader(LoaderConfig {
        normalize: normalize.clone(),
        ..LoaderConfig::train(BATCH)
    })?;
    let test = test.loader(LoaderConfig {
        normalize,
        ..LoaderConfig::eval(BATCH)
    })?;

    let params = Params::f32_cpu();
    let model = RowReader::new(params.builder())?;
    let image = Tensor::zeros((1, 1, 28, 28), DType::F32, &Device::Cpu)?;
    println!("{}", summary_of(&model, &image, Some(&params))?);
    println!("parameters: {}\n", params.names().join(", "));

    // One epoch eagerly, to compare with; then all of them, compiled.
    let eager = training(1, None, &train, &test)?;
    let compiled = training(EPOCHS, Some(CompileOptions::default()), &train, &test)?;
    let rate = |history: &History| history.last().map_or(0.0, |epoch| epoch.samples_per_second);
    println!(
        "{:.0} images/s eager, {:.0} compiled",
        rate(&eager),
        rate(&compiled)
    );
    let same = (eager.epochs[0].train.loss - compiled.epochs[0].train.loss).abs();
    ensure!(same < 0.02, "eager and compiled losses differ by {same}");
    let last = compiled.last().and_then(|epoch| epoch.evaluation.as_ref());
    let accuracy = last.context("nothing was evaluated")?.accuracy;
    ensure!(accuracy > 0.7, "it names {:.1} % rightly", 100.0 * accuracy);
    Ok(())
}

fn training(
    epochs: u64,
    compile: Option<CompileOptions>,
    train: &dyn BatchSource,
    test: &dyn BatchSource,
) -> Result<History> {
    let start = Instant::now();
    let way = if compile.is_some() {
        "compiled"
    } else {
        "eager"
    };
    let params = Params::f32_cpu();
    let model = RowReader::new(params.builder())?;
    let mut builder = Trainer::builder(model, params)
        .optimizer(AdamW::new(5e-3))
        // Gradients that come back through 28 steps may be long.
        .clip(tallow::train::GradientClip::norm(1.0))
        .epochs(epochs)
        .progress(ProgressDisplay::Off);
    if let Some(options) = compile {
        builder = builder.compile(options);
    }
    let history = builder.build()?.fit(train, Some(test))?;
    for epoch in &history.epochs {
        let evaluation = epoch.evaluation.as_ref().context("nothing was evaluated")?;
        println!(
            "{way}, epoch {}: training loss {:.4}, test accuracy {:.2} %",
            epoch.epoch + 1,
            epoch.train.loss,
            100.0 * evaluation.accuracy
        );
    }
    println!("{way}: {:.1} s\n", start.elapsed().as_secs_f64());
    Ok(history)
}
