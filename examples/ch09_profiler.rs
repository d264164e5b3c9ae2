//! Chapter 9: where does the time go? A training that waits for its data is profiled, told what to change, and profiled again; then
//! its operations are looked at, by module and by shape.
//!
//!     cargo run --release --example ch09_profiler
//!
//! Takes seconds. Reports are left in `runs/ch09_profiler/before` and `after`: open `report.html` in a browser,
//! and `trace.json` in https://ui.perfetto.dev.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use candle_core::{DType, Device};
use tallow::data::transform::{NormalizedImage, pipeline};
use tallow::data::{ImageDataset, Loader};
use tallow::prelude::*;
use tallow::profile::{Finding, Grouping, Profile, Profiler, Schedule, Waiting};

const BATCH: usize = 32;
/// What a sample waits for a slow disk, or for a server.
const DISK: Duration = Duration::from_millis(4);

fn main() -> Result<()> {
    let folder = Path::new("runs/ch09_profiler");

    // The training as it was: a loader with one worker, on a slow disk.
    let before = train(1)?;
    println!("{}\n", before.bottlenecks());
    before.write_to(folder.join("before"))?;
    let waiting = waiting(&before).context("a slow disk was expected to be named")?;
    ensure!(waiting.share > 0.3, "{waiting:?}");

    // As the report says.
    let workers = waiting.workers_needed as usize;
    let after = train(workers)?;
    println!("With {workers} workers:\n{}\n", after.bottlenecks());
    after.write_to(folder.join("after"))?;
    let (slow, fast) = (step(&before), step(&after));
    println!(
        "{slow:.1} ms a step before, {fast:.1} after: {:.1} times as fast\n",
        slow / fast
    );
    ensure!(fast < slow, "{workers} workers are no faster than one");

    // What is left are the kernels. Plans are recorded with modules and shapes.
    println!("{}\n", after.table(Grouping::Operation));
    println!("{}\n", after.table(Grouping::Module));
    for held in after.memory.holders.iter().take(5) {
        let mebibytes = held.bytes as f64 / f64::from(1 << 20);
        println!("{mebibytes:>8.2} MiB  {} {}", held.what, held.module);
    }
    println!("\nreports: {}", folder.display());
    Ok(())
}

/// Some steps of a training, recorded after the first ones: those compile, and fill the loader's places.
fn train(workers: usize) -> Result<Profile> {
    let (images, _) = datasets::fashion_mnist_subset()?;
    let loader = loader(&images, workers)?;
    let params = Params::new(42, DType::F32, &Device::Cpu);
    let model = SimpleCifar::new(1, 10, params.builder())?;
    let profiler = Profiler::builder()
        .schedule(Schedule::once(4, 1, 20))
        .start()?;
    let mut trainer = Trainer::builder(model, params)
        .optimizer(AdamW::new(0.01))
        .compile(CompileOptions::default())
        .limit_train_batches(25)
        .progress(ProgressDisplay::Off)
        .hook(Box::new(profiler.hook()))
        .build()?;
    trainer.fit(&loader, None)?;
    Ok(profiler.finish())
}

fn loader(images: &ImageDataset, workers: usize) -> Result<Loader> {
    let slow_disk = |image: NormalizedImage| {
        std::thread::sleep(DISK);
        Ok(image)
    };
    let changes = pipeline()
        .random_crop(28, 2)
        .to_tensor()
        .normalize(images.channel_stats()?)
        .lambda(slow_disk);
    let config = LoaderConfig::train(BATCH).with_workers(workers);
    Ok(Loader::train(images.clone(), changes, config)?)
}

/// What the report says about data, if anything.
fn waiting(profile: &Profile) -> Option<Waiting> {
    let findings = profile.bottlenecks().findings;
    findings.into_iter().find_map(|finding| match finding {
        Finding::WaitingForData(waiting) => Some(waiting),
        _ => None,
    })
}

/// Mean time of a step, in milliseconds.
fn step(profile: &Profile) -> f64 {
    profile.wall().as_secs_f64() * 1e3 / profile.steps.len().max(1) as f64
}
