//! Trains a convolutional network on real images that are part of Tallow, looks where the time goes, evaluates it, and leaves a
//! checkpoint and a delivery: a folder that says what is in it and proves on the target machine that it works.
//!
//!     cargo run --release --example quickstart
//!
//! Three passes over 8,000 images reach 85 % of the 1,000 test images, in 46 to 57 s on two cores of a Zen 3.
//!
//!     cargo run --release --example quickstart -- --data DIR
//!
//! trains on the whole of Fashion-MNIST, from a folder with its four idx files, packed with gzip or not: five passes over
//! 60,000 images reach 91.0 % of the 10,000 test images, in 11.6 minutes there.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device, Tensor};
use tallow::export::{Delivery, deliver, manifest::Build};
use tallow::nn::summary_of;
use tallow::prelude::*;
use tallow::profile::{Profiler, Schedule};

const USAGE: &str = "\
usage: quickstart [--data DIR] [--epochs N] [--seed N] [--out DIR]

  --data DIR   a folder with the four files of Fashion-MNIST; without it, the 8,000 images that are part of Tallow
  --epochs N   passes over the training images; 3, or 5 with --data
  --seed N     what initial values, order and dropout are drawn from; 42
  --out DIR    where the checkpoint, the history and the delivery go; runs/quickstart";

const BATCH: usize = 64;

fn main() -> Result<()> {
    let whole_program = tallow::profile::from_env()?;
    let Some(settings) = Settings::from_arguments(std::env::args().skip(1))? else {
        println!("{USAGE}");
        return Ok(());
    };
    let start = Instant::now();

    // Data: normalised; shuffled for training. Not mirrored: all shoes of this set point the same way.
    let (train, test) = match &settings.data {
        Some(folder) => datasets::fashion_mnist::load(folder)?,
        None => datasets::fashion_mnist_subset()?,
    };
    println!("{} training and {} test images", train.len(), test.len());
    let stats = train.channel_stats()?;
    let normalize = Some(stats.clone());
    let classes = train.class_names().to_vec();
    let samples = train.len();
    let train = train.loader(LoaderConfig {
        seed: settings.seed,
        normalize: normalize.clone(),
        ..LoaderConfig::train(BATCH)
    })?;
    let test = test.loader(LoaderConfig {
        normalize,
        ..LoaderConfig::eval(250)
    })?;

    // Model.
    let params = Params::new(settings.seed, DType::F32, &Device::Cpu);
    let model = SimpleCifar::new(1, 10, params.builder())?;
    let image = Tensor::zeros((1, 1, 28, 28), DType::F32, &Device::Cpu)?;
    println!("{}", summary_of(&model, &image, Some(&params))?);

    // Twenty steps are profiled, once plans are compiled and the loader is ahead; unless the whole program is.
    let profiler = match whole_program.profiler() {
        Some(profiler) => profiler.clone(),
        None => Profiler::builder()
            .schedule(Schedule::once(10, 2, 20))
            .start()?,
    };

    // Training.
    let checkpoint = settings.out.join("checkpoint.safetensors");
    let mut trainer = Trainer::builder(model, params)
        .optimizer(AdamW::new(0.01))
        .schedule_over_training(LrSchedule::one_cycle)
        .epochs(settings.epochs)
        .seed(settings.seed)
        .loss(CrossEntropyConfig {
            label_smoothing: 0.1,
            ..Default::default()
        })
        .compile(CompileOptions::default())
        .checkpoint(&checkpoint)
        .hook(Box::new(profiler.hook()))
        .build()?;
    let history = trainer.fit(&train, Some(&test))?;
    let profile = profiler.finish();
    println!("{}", profile.bottlenecks());

    let accuracy = history.last().and_then(|epoch| epoch.evaluation.as_ref());
    let accuracy = accuracy.context("no epoch was trained")?.accuracy;
    let path = settings.out.join("history.json");
    std::fs::write(&path, serde_json::to_string_pretty(&history)?)
        .with_context(|| format!("writing {}", path.display()))?;
    println!(
        "test accuracy {:.2} % after {:.1} s; checkpoint in {}",
        100.0 * accuracy,
        start.elapsed().as_secs_f64(),
        checkpoint.display()
    );

    // Delivery: frozen, exported, measured and verified.
    let batch = test.epoch(0)?.next().context("no test image")??;
    let build = Build::detect();
    let commit = if build.git_commit.is_empty() {
        "not in git"
    } else {
        &build.git_commit
    };
    let delivery = Delivery::new("quickstart", env!("CARGO_PKG_VERSION"))
        .params(trainer.params())
        .batch_sizes(&[1, 8])
        .classes(classes)
        .normalisation(255.0, &stats.mean, &stats.std)
        .trained_on(settings.seed, format!("Fashion-MNIST, {samples} images"))
        .metric("test_accuracy", accuracy)
        .git_commit(commit)
        .file("profile.txt", profile.summary());
    let image = batch.images.narrow(0, 0, 1)?;
    let folder = settings.out.join("delivery");
    let delivered = deliver(trainer.model(), &image, &delivery, folder)?;
    println!("{}", delivered.report);
    println!("done after {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// What the command line asks for.
struct Settings {
    data: Option<PathBuf>,
    epochs: u64,
    seed: u64,
    out: PathBuf,
}

impl Settings {
    /// None if help was asked for.
    fn from_arguments(arguments: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let (mut data, mut epochs, mut seed) = (None, None, 42);
        let mut out = PathBuf::from("runs/quickstart");
        let mut arguments = arguments.peekable();
        while let Some(name) = arguments.next() {
            if matches!(name.as_str(), "-h" | "--help") {
                return Ok(None);
            }
            if !["--data", "--epochs", "--seed", "--out"].contains(&name.as_str()) {
                bail!("unknown argument `{name}`\n\n{USAGE}");
            }
            let Some(value) = arguments.next_if(|value| !value.starts_with("--")) else {
                bail!("`{name}` needs a value\n\n{USAGE}");
            };
            let number = || match value.parse::<u64>() {
                Ok(number) => Ok(number),
                Err(_) => bail!("`{name}` needs a whole number, found `{value}`\n\n{USAGE}"),
            };
            match name.as_str() {
                "--data" => data = Some(PathBuf::from(value)),
                "--epochs" => epochs = Some(number()?),
                "--seed" => seed = number()?,
                _ => out = PathBuf::from(value),
            }
        }
        let epochs = epochs.unwrap_or(if data.is_some() { 5 } else { 3 });
        if epochs == 0 {
            bail!("`--epochs` needs at least 1, found 0\n\n{USAGE}");
        }
        Ok(Some(Self {
            data,
            epochs,
            seed,
            out,
        }))
    }
}
