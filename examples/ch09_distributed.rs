//! Chapter 9: data parallel training. Two ranks, each with half of every batch, make the steps of one process with the whole batch:
//! the same parameters but for rounding, batch norm included.
//!
//!     cargo run --release --example ch09_distributed
//!     cargo build --release --example ch09_distributed --features mpi
//!     mpirun -n 2 target/release/examples/ch09_distributed
//!
//! Ranks are threads of this process at first, and processes in the second form. Takes seconds. Threads share the cores that one
//! process has as well, so two ranks on one machine are not faster; on two machines they are.

use std::sync::Arc;

use anyhow::{Result, ensure};
use candle_core::{DType, Device};
use tallow::nn::SimpleCifarConfig;
use tallow::prelude::*;
use tallow::train::distributed::{Alone, Collective, run_threads};

/// Samples of a step, over all ranks.
const BATCH: usize = 128;
const STEPS: usize = 20;
const RANKS: usize = 2;

fn main() -> Result<()> {
    #[cfg(feature = "mpi")]
    if tallow::train::distributed::Mpi::is_launched() {
        let ranks = tallow::train::distributed::Mpi::new()?;
        return compare(Arc::new(ranks));
    }
    run_threads(RANKS, |ranks| compare(Arc::new(ranks)))?;
    Ok(())
}

/// The program of every rank.
fn compare(ranks: Arc<dyn Collective>) -> Result<()> {
    let (joint, speed) = train(ranks.clone())?;
    if ranks.is_first() {
        let count = ranks.world_size();
        println!(
            "{count} ranks, batches of {}: {speed:.0} images/s",
            BATCH / count
        );
        let (alone, speed) = train(Arc::new(Alone))?;
        println!("1 process, batches of {BATCH}: {speed:.0} images/s");
        let difference = largest_difference(&joint, &alone)?;
        println!("after {STEPS} steps their parameters differ by at most {difference:.1e}");
        ensure!(difference <= 1e-5, "these are not the same steps");
    }
    // Nobody leaves while others may still wait.
    Ok(ranks.barrier()?)
}

/// Twenty compiled steps on this rank's part of the data; gives the parameters, and the images of all ranks a second.
fn train(ranks: Arc<dyn Collective>) -> Result<(Params, f64)> {
    let (images, test) = datasets::fashion_mnist_subset()?;
    let normalize = Some(images.channel_stats()?);
    let config = LoaderConfig {
        shard: ranks.shard(),
        normalize: normalize.clone(),
        augment: Augment::flip_and_crop(2),
        ..LoaderConfig::train(BATCH / ranks.world_size())
    };
    let evaluation = LoaderConfig {
        shard: ranks.shard(),
        normalize,
        ..LoaderConfig::eval(100)
    };
    // Every rank draws dropout masks of its own: without dropout, the steps are those of one process.
    let model = SimpleCifarConfig {
        in_channels: 1,
        dropout: 0.0,
        ..Default::default()
    };
    let params = Params::new(42, DType::F32, &Device::Cpu);
    let model = SimpleCifar::from_config(model, params.builder())?;
    let mut trainer = Trainer::builder(model, params.clone())
        // Small steps: where rounding decides whether a ReLU lets a value through, gradients jump, and larger ones drift apart.
        .optimizer(Sgd::new(0.001))
        .limit_train_batches(STEPS)
        .compile(CompileOptions::default())
        .distributed(ranks)
        .sync_batch_norm(true)
        .build()?;
    let history = trainer.fit(
        &images.loader(config)?,
        Some(&test.take(1000).loader(evaluation)?),
    )?;
    Ok((params, history.epochs[0].samples_per_second))
}

fn largest_difference(ours: &Params, theirs: &Params) -> Result<f32> {
    let mut largest = 0f32;
    for (ours, theirs) in ours.iter().zip(theirs) {
        let distance = (ours.var.as_tensor() - theirs.var.as_tensor())?.abs()?;
        largest = largest.max(distance.flatten_all()?.max(0)?.to_scalar()?);
    }
    Ok(largest)
}
