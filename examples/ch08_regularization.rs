//! Chapter 8: against learning by heart. The same network on few images, without any remedy and with dropout, label
//! smoothing, MixUp, averaged weights, and all of them: what each does to the accuracy on images it has seen and on others.
//!
//!     cargo run --release --example ch08_regularization
//!
//! Prints a table; takes about 20 s.

use std::time::Instant;

use anyhow::{Result, ensure};
use candle_core::Tensor;
use candle_nn::{Module, ModuleT, VarBuilder};
use tallow::data::Loader;
use tallow::data::transform::MixUp;
use tallow::nn::{Conv2d, Conv2dConfig, Dropout, Flatten, Linear, MaxPool2d};
use tallow::prelude::*;
use tallow::tensor::no_grad;
use tallow::train::EmaConfig;

/// So few that the network could learn them all by heart.
const IMAGES: usize = 1000;
const EPOCHS: u64 = 20;
const BATCH: usize = 50;

/// Two convolutions, two linear layers, and dropout before each of these.
struct Net {
    conv1: Conv2d,
    conv2: Conv2d,
    dropout: Dropout,
    hidden: Linear,
    head: Linear,
}

impl Net {
    fn new(dropout: f64, vb: VarBuilder) -> candle_core::Result<Self> {
        let config = Conv2dConfig::default();
        Ok(Self {
            conv1: Conv2d::new(1, 8, 5, config.padding(2), vb.pp("conv1"))?,
            conv2: Conv2d::new(8, 16, 5, config, vb.pp("conv2"))?,
            dropout: Dropout::new(dropout)?,
            hidden: Linear::new(16 * 5 * 5, 256, vb.pp("hidden"))?,
            head: Linear::new(256, 10, vb.pp("head"))?,
        })
    }
}

impl ModuleT for Net {
    fn forward_t(&self, xs: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let pool = MaxPool2d::new(2);
        let xs = pool.forward(&ops::relu(&self.conv1.forward(xs)?)?)?;
        let xs = pool.forward(&ops::relu(&self.conv2.forward(&xs)?)?)?;
        let xs = self.dropout.forward_t(&Flatten.forward(&xs)?, train)?;
        let xs = ops::relu(&self.hidden.forward(&xs)?)?;
        self.head.forward(&self.dropout.forward_t(&xs, train)?)
    }
}

/// What is done against learning by heart.
#[derive(Debug, Clone, Copy, Default)]
struct Remedies {
    dropout: f64,
    label_smoothing: f64,
    /// Alpha of MixUp.
    mixup: Option<f64>,
    /// Decay of the averaged weights.
    ema: Option<f64>,
}

/// Of images of one set.
struct Measured {
    accuracy: f64,
    /// Cross entropy with the labels as they are, whatever the network was trained with.
    loss: f64,
}

fn main() -> Result<()> {
    let (train, test) = datasets::fashion_mnist_subset()?;
    let train = train.take(IMAGES);
    let normalize = Some(train.channel_stats()?);
    let loader = |data: &ImageDataset, config| {
        data.loader(LoaderConfig {
            normalize: normalize.clone(),
            ..config
        })
    };
    let training = loader(&train, LoaderConfig::train(BATCH))?;
    let seen = loader(&train, LoaderConfig::eval(250))?;
    let others = loader(&test, LoaderConfig::eval(250))?;

    let none = Remedies::default();
    let all = Remedies {
        dropout: 0.5,
        label_smoothing: 0.1,
        mixup: Some(0.2),
        ema: Some(0.98),
    };
    let rows = [
        ("none", none),
        (
            "dropout 0.5",
            Remedies {
                dropout: 0.5,
                ..none
            },
        ),
        (
            "label smoothing 0.1",
            Remedies {
                label_smoothing: 0.1,
                ..none
            },
        ),
        (
            "MixUp 0.2",
            Remedies {
                mixup: all.mixup,
                ..none
            },
        ),
        (
            "EMA 0.98",
            Remedies {
                ema: all.ema,
                ..none
            },
        ),
        ("all four", all),
    ];
    println!("{IMAGES} training images, {EPOCHS} epochs");
    println!("                      seen images      other images");
    println!("remedy                accuracy  loss   accuracy  loss   time");
    let mut losses = Vec::new();
    for (name, remedies) in rows {
        let start = Instant::now();
        let [on_seen, on_others] = measure(remedies, &training, [&seen, &others])?;
        println!(
            "{name:<20} {:7.1} % {:6.3}  {:7.1} % {:6.3}  {:.1} s",
            100.0 * on_seen.accuracy,
            on_seen.loss,
            100.0 * on_others.accuracy,
            on_others.loss,
            start.elapsed().as_secs_f64()
        );
        ensure!(on_others.accuracy > 0.7, "{name}: the network didn't learn");
        losses.push(on_others.loss);
    }
    // Sure of itself where it is wrong: that is what the loss on other images shows.
    let (without, with) = (losses[0], losses[rows.len() - 1]);
    ensure!(with < without, "all remedies together should help");
    println!("all four cut the loss on other images from {without:.3} to {with:.3}");
    Ok(())
}

/// Trains with these remedies and measures on both sets.
fn measure(remedies: Remedies, training: &Loader, sets: [&Loader; 2]) -> Result<[Measured; 2]> {
    let params = Params::f32_cpu();
    let model = Net::new(remedies.dropout, params.builder())?;
    let mut builder = Trainer::builder(model, params)
        .optimizer(AdamW::new(2e-3))
        .schedule(LrSchedule::constant())
        .epochs(EPOCHS)
        .loss(CrossEntropyConfig {
            label_smoothing: remedies.label_smoothing,
            ..Default::default()
        })
        .compile(CompileOptions::default())
        .progress(ProgressDisplay::Off);
    if let Some(decay) = remedies.ema {
        builder = builder.ema(EmaConfig::new(decay));
    }
    let mut trainer = builder.build()?;
    match remedies.mixup {
        Some(alpha) => trainer.fit(&MixUp { alpha, seed: 42 }.over(training), None)?,
        None => trainer.fit(training, None)?,
    };
    trainer.swap_ema()?; // the averaged weights, if there are any
    let [seen, others] = sets.map(|set| evaluate(trainer.model(), set));
    Ok([seen?, others?])
}

/// Accuracy and loss without anything that is for training alone.
fn evaluate(model: &Net, set: &Loader) -> Result<Measured> {
    let _guard = no_grad::enter();
    let (mut accuracy, mut loss) = <(metrics::RunningMean, metrics::RunningMean)>::default();
    for batch in set.epoch(0)? {
        let batch = batch?;
        let logits = model.forward_t(&batch.images, false)?;
        let cross_entropy = CrossEntropyConfig::default();
        let mean = ops::cross_entropy(&logits, &batch.labels, &cross_entropy)?;
        loss.add(f64::from(mean.to_scalar::<f32>()?), batch.len() as u64);
        let share = metrics::accuracy(&logits, &batch.labels)?;
        accuracy.add(share, batch.len() as u64);
    }
    Ok(Measured {
        accuracy: accuracy.mean().unwrap_or_default(),
        loss: loss.mean().unwrap_or_default(),
    })
}
