//! Chapter 4: a data set of one's own, and a loader that makes its batches on several threads: the same batches for any
//! number of workers, an epoch that goes on where it was left, and what happens to a sample that is damaged.
//!
//!     cargo run --release --example ch04_dataloader
//!
//! Takes seconds, most of them for comparing one worker with two.

use std::time::Instant;

use anyhow::{Result, ensure};
use tallow::data::transform::pipeline;
use tallow::data::{Dataset, Error, Image, Loader, LoaderState, OnError, source};
use tallow::prelude::*;

/// Samples of the data set, and of a batch.
const SAMPLES: usize = 640;
const BATCH: usize = 32;

/// Rings of different widths; their class is the width.
#[derive(Clone)]
struct Rings {
    /// One that can't be read, if there is one.
    damaged: Option<usize>,
}

impl Dataset for Rings {
    type Sample = (Image, u32);

    fn len(&self) -> usize {
        SAMPLES
    }

    fn get(&self, index: usize) -> tallow::data::Result<(Image, u32)> {
        if self.damaged == Some(index) {
            return Err(Error::custom("the file ends too early"));
        }
        let width = 2 + index % 8;
        let value = |place: usize| {
            let (y, x) = (place / 96, place % 96);
            let distance = (y as f64 - 48.).hypot(x as f64 - 48.);
            // Work enough for a second worker to be of use, as decoding a file would be.
            let wave =
                (1..8).map(|k| (distance / width as f64 * f64::from(k)).sin() / f64::from(k));
            (128. + 60. * wave.sum::<f64>()) as u8
        };
        let image = Image::new((0..96 * 96).map(value).collect(), [96, 96], 1)?;
        Ok((image, width as u32 - 2))
    }

    fn describe(&self, index: usize) -> String {
        format!("ring {index} (rings/{index:03}.png)")
    }
}

/// What the batches of this chapter are: labels, and the mean of each image as far as it was changed.
type Seen = Vec<(u32, f32)>;

fn loader(rings: Rings, config: LoaderConfig) -> tallow::data::Result<Loader<Seen>> {
    let change = |(image, label): (Image, u32), draw: &mut tallow::tensor::rng::Stream| {
        // Random numbers come from the sample's own stream: the same for any number of workers.
        let gain = draw.uniform_in(0.8, 1.2) as f32;
        let sum: f32 = image.values().iter().map(|&value| f32::from(value)).sum();
        Ok((label, gain * sum / image.values().len() as f32))
    };
    Loader::collated(rings, change, Ok, config)
}

fn main() -> Result<()> {
    let _profile = tallow::profile::from_env()?;
    let rings = Rings { damaged: None };
    let first = same_batches(&rings)?;
    resume(&rings, &first)?;
    errors()?;
    pipelines()
}

/// Workers change how long an epoch takes, and not a bit of it.
fn same_batches(rings: &Rings) -> Result<Vec<Seen>> {
    let mut first = None;
    for workers in [0, 1, 2] {
        let loader = loader(
            rings.clone(),
            LoaderConfig::train(BATCH).with_workers(workers),
        )?;
        let start = Instant::now();
        let batches: Vec<Seen> = loader.batches(0)?.collect::<tallow::data::Result<_>>()?;
        let (took, stats) = (start.elapsed(), loader.stats());
        println!(
            "{workers} workers: {:5.0} samples/s, {} batches; the reader waited {:3.0} % of the time",
            stats.samples as f64 / took.as_secs_f64(),
            stats.batches,
            100. * stats.wait.as_secs_f64() / took.as_secs_f64(),
        );
        match &first {
            None => first = Some(batches),
            Some(first) => ensure!(batches == *first, "other batches with {workers} workers"),
        }
    }
    Ok(first.unwrap_or_default())
}

/// A reader's place is a few numbers; another program, with other workers, goes on from there.
fn resume(rings: &Rings, whole: &[Seen]) -> Result<()> {
    let loader_before = loader(rings.clone(), LoaderConfig::train(BATCH))?;
    let mut batches = loader_before.batches(0)?;
    for batch in batches.by_ref().take(7) {
        batch?;
    }
    let saved = serde_json::to_string(&batches.state())?;
    drop(batches); // stops the worker

    let state: LoaderState = serde_json::from_str(&saved)?;
    let loader_after = loader(rings.clone(), LoaderConfig::train(BATCH).with_workers(2))?;
    let rest: Vec<Seen> = loader_after
        .resume(&state)?
        .collect::<tallow::data::Result<_>>()?;
    ensure!(rest == whole[7..], "resumed batches differ");
    println!(
        "resumed after batch {}: the same {} batches",
        state.batch,
        rest.len()
    );
    Ok(())
}

/// An error names its sample; how many samples may be missing is a setting.
fn errors() -> Result<()> {
    let rings = Rings { damaged: Some(100) };
    let strict = loader(rings.clone(), LoaderConfig::eval(BATCH))?;
    for batch in strict.batches(0)? {
        if let Err(error) = batch {
            println!("on_error: Fail gives: {error}");
        }
    }
    let config = LoaderConfig {
        on_error: OnError::Skip { at_most: 3 },
        ..LoaderConfig::eval(BATCH)
    };
    let lenient = loader(rings, config)?;
    let seen: usize = lenient
        .batches(0)?
        .map(|batch| batch.map(|batch| batch.len()))
        .sum::<tallow::data::Result<_>>()?;
    ensure!(seen == SAMPLES - 1);
    println!("on_error: Skip leaves out: {:?}", lenient.skipped());

    // So does a panic, in a function of one's own.
    let numbers = source::list(0..4u32);
    let panics = |number: u32, _: &mut _| match number {
        2 => panic!("can't count to two"),
        number => Ok(number),
    };
    std::panic::set_hook(Box::new(|_| {}));
    let config = LoaderConfig::eval(1).with_workers(2);
    let batches: Vec<_> = Loader::collated(numbers, panics, Ok, config)?
        .batches(0)?
        .collect();
    let _ = std::panic::take_hook();
    ensure!(batches.len() == 4 && batches[3].is_ok());
    if let Err(error) = &batches[2] {
        println!("a panic gives: {error}");
    }
    Ok(())
}

/// Images through a typed pipeline; such a loader is what a `Trainer` is given.
fn pipelines() -> Result<()> {
    let (train, _) = datasets::fashion_mnist_subset()?;
    let changes = pipeline()
        .random_crop(28, 2)
        .random_horizontal_flip(0.5)
        .to_tensor()
        .normalize(train.channel_stats()?);
    let loader = Loader::train(train, changes, LoaderConfig::train(128).with_workers(2))?;
    let start = Instant::now();
    for batch in loader.epoch(0)? {
        ensure!(batch?.images.dims() == [128, 1, 28, 28]);
    }
    let rate = loader.stats().samples as f64 / start.elapsed().as_secs_f64();
    println!("Fashion-MNIST, flipped and shifted: {rate:.0} images/s");
    Ok(())
}
