//! How many images a second a loader makes ready: one JSON line a case, the counterpart of `benches/torch_loader.py`.
//!
//!     cargo bench --bench loader                        # images in memory, 0, 1 and 2 workers
//!     cargo bench --bench loader -- memory 2
//!     cargo bench --bench loader -- fused 2
//!     cargo bench --bench loader -- jpeg 2 FOLDER       # `torch_loader.py make FOLDER` writes it
//!     cargo bench --bench loader -- held 2 FOLDER
//!     cargo bench --bench loader -- training 1
//!
//! `memory` reads 50,000 images [3, 32, 32] out of memory through a pipeline: pad 4, random crop, flip, to tensor, normalize,
//! batches of 128; `fused` does the same by `ImageDataset::loader`. `jpeg` reads an image folder: resize 256, centre crop
//! 224, normalize, batches of 32. A figure is the median of five epochs after a first. `held` goes on with `jpeg` for 50,000
//! images, and prints the most memory that the process has held along the way. `training` trains SimpleCifar by compiled steps on what
//! `memory` gives, and prints the share of the time in which it waited for batches.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use candle_core::{DType, Device};
use tallow::prelude::*;
use tallow_data::transform::pipeline;
use tallow_data::{Augment, ImageDataset, ImageFolder, Loader, LoaderConfig, Normalize};

const EPOCHS: u64 = 5;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => {
            for workers in [0, 1, 2] {
                report("memory", workers, &memory(workers)?)?;
                report("fused", workers, &fused(workers)?)?;
            }
            Ok(())
        }
        ["memory", workers] => report("memory", number(workers), &memory(number(workers))?),
        ["fused", workers] => report("fused", number(workers), &fused(number(workers))?),
        ["jpeg", workers, folder] => {
            report("jpeg", number(workers), &jpeg(number(workers), folder)?)
        }
        ["held", workers, folder] => held(number(workers), &jpeg(number(workers), folder)?),
        ["training", workers] => training(number(workers)),
        _ => {
            eprintln!(
                "usage: loader [memory WORKERS | fused WORKERS | jpeg WORKERS FOLDER | held WORKERS FOLDER | training WORKERS]"
            );
            std::process::exit(2);
        }
    }
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| {
        eprintln!("{text} is no number of workers");
        std::process::exit(2);
    })
}

fn dataset() -> Result<ImageDataset> {
    let pixels = (0..50_000 * 3 * 32 * 32).map(|i| (i % 253) as u8).collect();
    let labels = (0..50_000).map(|i| i % 10).collect();
    let classes = (0..10).map(|i| i.to_string());
    Ok(ImageDataset::new(pixels, [3, 32, 32], labels, classes)?)
}

fn cifar() -> Normalize {
    Normalize {
        mean: vec![0.4914, 0.4822, 0.4465],
        std: vec![0.247, 0.2435, 0.2616],
    }
}

fn memory(workers: usize) -> Result<Loader> {
    let train = pipeline()
        .random_crop(32, 4)
        .random_horizontal_flip(0.5)
        .to_tensor()
        .normalize(cifar());
    let config = LoaderConfig::train(128).with_workers(workers);
    Ok(Loader::train(dataset()?, train, config)?)
}

fn fused(workers: usize) -> Result<Loader> {
    Ok(dataset()?.loader(LoaderConfig {
        augment: Augment::flip_and_crop(4),
        normalize: Some(cifar()),
        ..LoaderConfig::train(128).with_workers(workers)
    })?)
}

fn jpeg(workers: usize, folder: &str) -> Result<Loader> {
    let eval = pipeline()
        .resize(256)
        .center_crop(224)
        .to_tensor()
        .normalize(Normalize {
            mean: vec![0.485, 0.456, 0.406],
            std: vec![0.229, 0.224, 0.225],
        });
    let config = LoaderConfig::eval(32).with_workers(workers);
    Ok(Loader::eval(ImageFolder::open(folder)?, eval, config)?)
}

fn report(case: &str, workers: usize, loader: &Loader) -> Result<()> {
    let mut rates = Vec::new();
    for epoch in 0..=EPOCHS {
        let (start, before) = (Instant::now(), loader.stats().samples);
        for batch in loader.batches(epoch)? {
            black_box(batch?);
        }
        let samples = loader.stats().samples - before;
        if epoch > 0 {
            rates.push(samples as f64 / start.elapsed().as_secs_f64());
        }
    }
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    println!(r#"{{"case":"{case}","workers":{workers},"images_per_s":{median:.0}}}"#);
    Ok(())
}

/// Prints the most that the process has held while 50,000 images pass.
fn held(workers: usize, loader: &Loader) -> Result<()> {
    const IMAGES: u64 = 50_000;
    let (mut epoch, mut next) = (0, 0);
    while loader.stats().samples < IMAGES {
        for batch in loader.batches(epoch)? {
            black_box(batch?);
        }
        epoch += 1;
        let samples = loader.stats().samples;
        if epoch <= 3 || samples >= next {
            let peak = peak_bytes()? as f64 / 1e6;
            println!(
                r#"{{"case":"held","workers":{workers},"epoch":{epoch},"images":{samples},"peak_mb":{peak:.1}}}"#
            );
            next = samples + IMAGES / 10;
        }
    }
    Ok(())
}

/// Prints the share of a compiled training's time in which it waits for its batches.
fn training(workers: usize) -> Result<()> {
    let loader = memory(workers)?;
    let params = Params::new(1, DType::F32, &Device::Cpu);
    let model = SimpleCifar::new(3, 10, params.builder())?;
    let mut trainer = Trainer::builder(model, params)
        .optimizer(AdamW::new(1e-3))
        .epochs(2)
        .limit_train_batches(100)
        .compile(CompileOptions::default())
        .build()?;
    let (start, before) = (Instant::now(), loader.stats().wait);
    trainer.fit(&loader, None)?;
    let wait = (loader.stats().wait - before).as_secs_f64();
    let (share, all) = (
        100.0 * wait / start.elapsed().as_secs_f64(),
        start.elapsed(),
    );
    println!(
        r#"{{"case":"training","workers":{workers},"seconds":{:.1},"wait_seconds":{wait:.3},"wait_percent":{share:.2}}}"#,
        all.as_secs_f64()
    );
    Ok(())
}

/// The most memory that the process has held, by Linux's /proc/self/status; 0 elsewhere.
fn peak_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(1024 * kilobytes.unwrap_or("0").parse::<u64>()?)
}
