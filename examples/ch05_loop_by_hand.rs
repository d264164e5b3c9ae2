//! Chapter 5: what a training loop consists of. Written out by hand, then the same through `Trainer` with a hook of one's own: both
//! end with the same bits in every parameter.
//!
//!     cargo run --release --example ch05_loop_by_hand
//!
//! LeNet-5 names about four of five test images rightly after three epochs over 4,000 images.

use std::time::Instant;

use anyhow::{Result, ensure};
use candle_nn::ModuleT;
use tallow::data::Loader;
use tallow::nn::LeNet5;
use tallow::prelude::*;
use tallow::tensor::{no_grad, rng};
use tallow::train::Result as HookResult;

const SEED: u64 = 42;
const EPOCHS: u64 = 3;
const LEARNING_RATE: f64 = 4e-3;

fn main() -> Result<()> {
    let _profile = tallow::profile::from_env()?;
    let (train, test) = datasets::fashion_mnist_subset()?;
    let train = train.take(4000);
    let normalize = Some(train.channel_stats()?);
    let train = train.loader(LoaderConfig {
        normalize: normalize.clone(),
        ..LoaderConfig::train(50)
    })?;
    let test = test.loader(LoaderConfig {
        normalize,
        ..LoaderConfig::eval(250)
    })?;

    let by_hand = by_hand(&train, &test)?;
    let by_trainer = by_trainer(&train, &test)?;

    // Parameters of the same seed, batches of the same seed, the same arithmetic in the same order.
    for ((name, ours), (_, theirs)) in by_hand.to_tensors()?.iter().zip(&by_trainer.to_tensors()?) {
        let bits = |tensor: &candle_core::Tensor| -> Result<Vec<u32>> {
            let values = tensor.flatten_all()?.to_vec1::<f32>()?;
            Ok(values.into_iter().map(f32::to_bits).collect())
        };
        ensure!(bits(ours)? == bits(theirs)?, "{name} differs");
    }
    println!("the same bits in all {} parameters", by_hand.count());
    Ok(())
}

/// Everything that a step consists of.
fn by_hand(train: &Loader, test: &Loader) -> Result<Params> {
    let params = Params::f32_cpu();
    let model = LeNet5::new(10, params.builder())?;
    let loss_function = CrossEntropyConfig::default();
    let mut optimizer = AdamW::new(LEARNING_RATE);
    let steps = EPOCHS * train.len_hint().unwrap_or_default() as u64;
    let schedule = LrSchedule::one_cycle(steps);

    let mut step = 0;
    for epoch in 0..EPOCHS {
        let start = Instant::now();
        let mut running_loss = metrics::RunningMean::default();
        for batch in train.epoch(epoch)? {
            let batch = batch?;
            // What dropout would draw from, if the model had any: the same in every run.
            rng::begin_step(SEED, step);
            optimizer.set_lr(schedule.lr(LEARNING_RATE, step));

            let logits = model.forward_t(&batch.images, true)?;
            let loss = ops::cross_entropy(&logits, &batch.labels, &loss_function)?;
            running_loss.add(f64::from(loss.to_scalar::<f32>()?), batch.len() as u64);
            let mut gradients = loss.backward()?; // new ones each time: nothing to set to zero
            optimizer.step(&params.trainable(), &mut gradients)?;
            step += 1;
        }
        println!(
            "by hand, epoch {}: loss {:.4}, test accuracy {:.2} %, {:.1} s",
            epoch + 1,
            running_loss.mean().unwrap_or_default(),
            100. * evaluate(&model, test)?,
            start.elapsed().as_secs_f64()
        );
    }
    Ok(params)
}

/// The share of test images that the model names rightly.
fn evaluate(model: &impl ModuleT, test: &Loader) -> Result<f64> {
    let _guard = no_grad::enter(); // nobody will ask for gradients, so keep nothing for them
    let mut accuracy = metrics::RunningMean::default();
    for batch in test.epoch(0)? {
        let batch = batch?;
        let logits = model.forward_t(&batch.images, false)?;
        accuracy.add(
            metrics::accuracy(&logits, &batch.labels)?,
            batch.len() as u64,
        );
    }
    Ok(accuracy.mean().unwrap_or_default())
}

/// A hook has methods for the points of the loop; this one watches for losses that leap.
#[derive(Default)]
struct LossWatch {
    mean: f64,
    leaps: u64,
}

impl Hook for LossWatch {
    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> HookResult<()> {
        let loss = context.loss().unwrap_or_default();
        if context.step() > 20 && loss > 2. * self.mean {
            self.leaps += 1;
        }
        self.mean = if context.step() == 1 {
            loss
        } else {
            0.95 * self.mean + 0.05 * loss
        };
        Ok(())
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> HookResult<()> {
        context.record("leaps", self.leaps as f64)
    }
}

/// The same, where the loop is the trainer's.
fn by_trainer(train: &Loader, test: &Loader) -> Result<Params> {
    let params = Params::f32_cpu();
    let model = LeNet5::new(10, params.builder())?;
    let mut trainer = Trainer::builder(model, params.clone())
        .optimizer(AdamW::new(LEARNING_RATE))
        .schedule_over_training(LrSchedule::one_cycle)
        .epochs(EPOCHS)
        .seed(SEED)
        .hook(Box::new(LossWatch::default()))
        .progress(ProgressDisplay::Off)
        .build()?;
    let history = trainer.fit(train, Some(test))?;
    for record in &history.epochs {
        let evaluation = record.evaluation.as_ref().map(|m| m.to_string());
        println!(
            "trainer, epoch {}: {}; test {}; {} losses leapt; {:.0} images/s",
            record.epoch + 1,
            record.train,
            evaluation.unwrap_or_default(),
            record.recorded["leaps"],
            record.samples_per_second
        );
    }
    Ok(params)
}
