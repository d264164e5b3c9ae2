//! Fine-tuning: a network learns six classes of clothes, gets a new head, and learns the other four with its first layers
//! frozen.
//!
//!     cargo run --release --example finetune
//!
//! The same goes for weights from elsewhere: `Params::load_renamed` reads `.safetensors`, `.pt` and `.pth` files, whose names a
//! `NameMap` turns into the model's.

use anyhow::{Context, Result};
use candle_core::{DType, Device};
use tallow::prelude::*;
use tallow::train::hooks::{Better, EarlyStopping, NanGuard};

/// The classes of the first task; the second has the rest.
const FIRST: u32 = 6;
const BATCH: usize = 50;

fn main() -> Result<()> {
    let _profile = tallow::profile::from_env()?;
    let (train, test) = datasets::fashion_mnist_subset()?;
    let normalize = train.channel_stats()?;
    let loaders = |of: &dyn Fn(u32) -> Option<u32>, classes: u32| -> Result<_> {
        let train = part(&train.take(4000), of, classes)?;
        let test = part(&test, of, classes)?;
        let normalize = Some(normalize.clone());
        let training = LoaderConfig {
            normalize: normalize.clone(),
            ..LoaderConfig::train(BATCH)
        };
        let evaluation = LoaderConfig {
            normalize,
            ..LoaderConfig::eval(BATCH)
        };
        Ok((train.loader(training)?, test.loader(evaluation)?))
    };
    let folder = tempfile::tempdir()?;
    let weights = folder.path().join("six-classes.safetensors");

    // The first task, from scratch.
    let (train_first, test_first) = loaders(&|label| (label < FIRST).then_some(label), FIRST)?;
    let params = Params::new(42, DType::F32, &Device::Cpu);
    let model = LeNet5::new(FIRST as usize, params.builder())?;
    let mut trainer = Trainer::builder(model, params.clone())
        .optimizer(AdamW::new(2e-3))
        .epochs(4)
        .hook(Box::new(NanGuard::new()))
        .compile(CompileOptions::default())
        .build()?;
    let first = trainer.fit(&train_first, Some(&test_first))?;
    params.save(&weights)?;
    println!("{FIRST} classes from scratch: {:.1} %", percent(&first)?);

    // The second: all but the head from the file, in which `fc3` has other classes.
    let others = 10 - FIRST;
    let (train_second, test_second) = loaders(&|label| label.checked_sub(FIRST), others)?;
    let params = Params::new(42, DType::F32, &Device::Cpu);
    let model = LeNet5::new(others as usize, params.builder())?;
    let report = params.load_renamed(&weights, &NameMap::new().skip("fc3"), Strict::No)?;
    println!("{report}");
    for layer in ["conv1", "conv2"] {
        params.freeze(layer);
    }
    let trainable: usize = params
        .trainable()
        .iter()
        .map(|(_, var)| var.elem_count())
        .sum();
    println!("{trainable} of {} parameters are trained", params.count());
    let mut trainer = Trainer::builder(model, params)
        .optimizer(AdamW::new(1e-3))
        .epochs(6)
        .hook(Box::new(
            EarlyStopping::new("evaluation/loss", Better::Lower).patience(2),
        ))
        .compile(CompileOptions::default())
        .build()?;
    let second = trainer.fit(&train_second, Some(&test_second))?;
    println!(
        "{others} other classes after fine-tuning: {:.1} %",
        percent(&second)?
    );
    Ok(())
}

/// The images whose label `of` gives another one for.
fn part(
    data: &ImageDataset,
    of: &dyn Fn(u32) -> Option<u32>,
    classes: u32,
) -> Result<ImageDataset> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for (index, &label) in data.labels().iter().enumerate() {
        if let (Some(label), Some(image)) = (of(label), data.image(index)) {
            pixels.extend_from_slice(image);
            labels.push(label);
        }
    }
    let names = (0..classes).map(|class| class.to_string());
    Ok(ImageDataset::new(
        pixels,
        data.image_shape(),
        labels,
        names,
    )?)
}

/// The best accuracy of an evaluation.
fn percent(history: &History) -> Result<f64> {
    let best = history.best().and_then(|epoch| epoch.evaluation.as_ref());
    Ok(100.0 * best.context("no epoch was evaluated")?.accuracy)
}
