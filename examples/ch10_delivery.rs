//! Chapter 10: from a trained model to a delivery that proves itself.
//!
//!     cargo run --release --example ch10_delivery
//!
//! Trains LeNet-5 for one pass over 2,000 of the images that are part of Tallow, proves that its inference is inference, freezes it,
//! loads the program without the model, writes and reads ONNX, runs it in 8 bits, delivers all of it in one folder, and shows that a delivery
//! with one changed byte is refused. About a second on two cores of a Zen 3.

use anyhow::{Context, Result, ensure};
use candle_core::{D, DType, Device, Tensor};
use candle_nn::ModuleT;
use tallow::export::{
    self, Delivery, FreezeOptions, Program, QuantizeOptions, Runner, deliver, onnx, verify,
};
use tallow::prelude::*;

const SEED: u64 = 42;

fn main() -> Result<()> {
    let _profile = tallow::profile::from_env()?;
    let folder = tempfile::tempdir()?;

    // A trained model.
    let (train, test) = datasets::fashion_mnist_subset()?;
    let stats = train.channel_stats()?;
    let classes: Vec<String> = train
        .class_names()
        .iter()
        .map(ToString::to_string)
        .collect();
    let loader = |data: &ImageDataset, config: LoaderConfig| {
        data.clone().loader(LoaderConfig {
            seed: SEED,
            normalize: Some(stats.clone()),
            ..config
        })
    };
    let train = loader(&train, LoaderConfig::train(32))?;
    let test = loader(&test, LoaderConfig::eval(250))?;
    let params = Params::new(SEED, DType::F32, &Device::Cpu);
    let model = LeNet5::new(10, params.builder())?;
    let mut trainer = Trainer::builder(model, params.clone())
        .optimizer(AdamW::new(0.003))
        .epochs(1)
        .limit_train_batches(63)
        .compile(CompileOptions::default())
        .build()?;
    trainer.fit(&train, None)?;
    let accuracy = trainer.evaluate(&test)?.accuracy;
    println!("test accuracy {:.1} %", 100.0 * accuracy);
    let model = trainer.model();
    let image = first_image(&test)?;

    // Inference alone: PyTorch's `model.eval()` forgotten is a fault that shows late; here it is one that shows at once.
    export::verify_model(model, &image)?;
    let forgotten = candle_nn::func_t(|xs, _| ops::dropout(xs, 0.5, true));
    let error = export::verify_model(&forgotten, &image)
        .err()
        .context("dropout went unnoticed")?;
    println!("\n{error}");

    // Frozen, saved, and loaded without the model's type.
    let options = FreezeOptions::new().params(&params).batch_sizes(&[1, 8]);
    let path = folder.path().join("model.safetensors");
    options.freeze(model, &image)?.save(&path)?;
    let program = Program::load(&path)?;
    let runner = program.compile(CompileOptions::default())?;
    let expected = model.forward_t(&image, false)?;
    println!(
        "\nprogram for batches of {:?}: differs by {:.1e}",
        program.batch_sizes(),
        difference(&runner.forward(&image)?, &expected)?
    );

    // ONNX, out and in.
    let path = folder.path().join("model.onnx");
    onnx::write(&program, &path)?;
    let runner = onnx::read(&path, &[])?.compile(CompileOptions::default())?;
    println!(
        "from ONNX: differs by {:.1e}",
        difference(&runner.forward(&image)?, &expected)?
    );

    // In 8 bits: weights a quarter as large, nearly the same decisions. Images of the training say how large values become.
    let images = train.epoch(1)?.next().context("no batch")??.images;
    let options = FreezeOptions::new().params(&params).batch_sizes(&[32, 250]);
    let program = options.freeze(model, &images)?;
    let int8 = export::quantize(&program, &[images], &QuantizeOptions::new())?;
    let runners = [&program, &int8.program].map(|p| p.compile(CompileOptions::default()));
    let [floats, whole] = runners;
    let agreement = agreement(&floats?, &whole?, &test)?;
    println!(
        "in 8 bits: {:.1} % of decisions are the same",
        100.0 * agreement
    );
    ensure!(agreement > 0.97, "8 bits decide otherwise");

    // The twelve points at once.
    let Normalize { mean, std } = &stats;
    let delivery = Delivery::new("clothes", "1.0.0")
        .params(&params)
        .batch_sizes(&[1, 8])
        .classes(classes)
        .normalisation(255.0, mean, std)
        .trained_on(SEED, "Fashion-MNIST, 2,000 of the 8,000 images in Tallow")
        .metric("test_accuracy", accuracy)
        .git_commit(commit());
    let target = folder.path().join("clothes-1.0.0");
    let delivered = deliver(model, &image, &delivery, &target)?;
    println!("\n{}", delivered.report);

    // What the operator sees if a single byte is wrong.
    let path = target.join("model.onnx");
    let mut bytes = std::fs::read(&path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes)?;
    let report = verify(&target);
    println!("\n{report}");
    ensure!(!report.deploy(), "a changed byte went unnoticed");
    Ok(())
}

fn first_image(data: &dyn BatchSource) -> Result<Tensor> {
    let batch = data.epoch(0)?.next().context("no batch")??;
    Ok(batch.images.narrow(0, 0, 1)?)
}

/// The share of images for which both name the same class.
fn agreement(a: &Runner, b: &Runner, data: &dyn BatchSource) -> Result<f64> {
    let (mut same, mut all) = (0, 0);
    for batch in data.epoch(0)? {
        let images = batch?.images;
        let classes = |runner: &Runner| -> Result<Vec<u32>> {
            Ok(runner.forward(&images)?.argmax(D::Minus1)?.to_vec1()?)
        };
        let (a, b) = (classes(a)?, classes(b)?);
        same += a.iter().zip(&b).filter(|(a, b)| a == b).count();
        all += a.len();
    }
    Ok(same as f64 / all.max(1) as f64)
}

fn difference(a: &Tensor, b: &Tensor) -> Result<f32> {
    Ok((a - b)?.abs()?.max_all()?.to_scalar()?)
}

/// The commit that this is built from; an unpacked archive has none.
fn commit() -> String {
    match export::manifest::Build::detect().git_commit {
        commit if commit.is_empty() => "not in git".into(),
        commit => commit,
    }
}
