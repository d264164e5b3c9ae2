//! Chapter 6: mixed precision. The same training in 32-bit floats and with products in bfloat16 (`torch.autocast`), from
//! the same seed: how near the losses stay, what was rounded, and that the parameters weren't.
//!
//!     cargo run --release --example ch06_mixed_precision
//!
//! Both end with about the same accuracy, in some 20 s. Bfloat16 is only faster where the CPU multiplies it (AVX512-BF16);
//! elsewhere 32-bit kernels compute the same numbers.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::ModuleT;
use tallow::compile::{Precision, explain_step};
use tallow::data::Loader;
use tallow::nn::LeNet5;
use tallow::prelude::*;

const EPOCHS: u64 = 3;

fn main() -> Result<()> {
    let _profile = tallow::profile::from_env()?;
    println!("kernels for {}", tallow::kernels::simd::level());
    let (train, test) = datasets::fashion_mnist_subset()?;
    let normalize = Some(train.channel_stats()?);
    let train = train.loader(LoaderConfig {
        normalize: normalize.clone(),
        ..LoaderConfig::train(50)
    })?;
    let test = test.loader(LoaderConfig {
        normalize,
        ..LoaderConfig::eval(250)
    })?;

    what_is_rounded()?;
    let (exact, _) = training(Precision::F32, &train, &test)?;
    let (mixed, params) = training(Precision::Bf16, &train, &test)?;
    ensure!(
        (exact - mixed).abs() < 0.03,
        "bfloat16 changed the accuracy from {exact} to {mixed}"
    );

    // What the optimizer adds to is kept in full: a step is often smaller than bfloat16 could show.
    let beyond = params.trainable().iter().try_fold(0, |count, (_, var)| {
        anyhow::Ok(count + beyond_bf16(var.as_tensor())?)
    })?;
    println!(
        "{beyond} of {} parameters have digits that bfloat16 hasn't",
        params
            .trainable()
            .iter()
            .map(|(_, var)| var.elem_count())
            .sum::<usize>()
    );
    Ok(())
}

/// The operations of a training step that read rounded values.
fn what_is_rounded() -> Result<()> {
    let params = Params::f32_cpu();
    let model = LeNet5::new(10, params.builder())?;
    let images = Tensor::zeros((2, 1, 28, 28), DType::F32, &Device::Cpu)?;
    let labels = Tensor::new(&[0u32, 1], &Device::Cpu)?;
    let forward = |images: &Tensor, labels: &Tensor| {
        let outputs = model.forward_t(images, true)?;
        let loss = ops::cross_entropy(&outputs, labels, &CrossEntropyConfig::default())?;
        Ok((loss, outputs))
    };
    let options = CompileOptions::default().precision(Precision::Bf16);
    let explanation = explain_step(&params, &images, &labels, forward, &options)?;
    for (kernel, count) in &explanation.kernels {
        println!("{count:4} {kernel}");
    }
    Ok(())
}

/// Trains a model; gives its accuracy and its parameters.
fn training(precision: Precision, train: &Loader, test: &Loader) -> Result<(f64, Params)> {
    let start = Instant::now();
    let params = Params::f32_cpu();
    let model = LeNet5::new(10, params.builder())?;
    let mut trainer = Trainer::builder(model, params.clone())
        .optimizer(AdamW::new(4e-3))
        .schedule_over_training(LrSchedule::one_cycle)
        .epochs(EPOCHS)
        .compile(CompileOptions::default().precision(precision))
        .build()?;
    let history = trainer.fit(train, Some(test))?;
    let last = history.last().context("no epoch was trained")?;
    let evaluation = last.evaluation.as_ref().context("nothing was evaluated")?;
    println!(
        "{precision:?}: training loss {:.4}, test accuracy {:.2} %, {:.1} s",
        last.train.loss,
        100.0 * evaluation.accuracy,
        start.elapsed().as_secs_f64()
    );
    Ok((evaluation.accuracy, params))
}

/// How many elements aren't bfloat16 numbers.
fn beyond_bf16(values: &Tensor) -> Result<usize> {
    let rounded = values.to_dtype(DType::BF16)?.to_dtype(DType::F32)?;
    let differ = values.ne(&rounded)?.to_dtype(DType::U32)?;
    Ok(differ.sum_all()?.to_scalar::<u32>()? as usize)
}
