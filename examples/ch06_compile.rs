//! Chapter 6: compiling. A model compiled for inference, what compilation made of it, a graph break and its cure, the
//! modes, and a whole training step.
//!
//!     cargo run --release --example ch06_compile
//!
//! Ends in a few seconds; prints how much faster the compiled step is than the eager one on this machine.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::ModuleT;
use tallow::compile::StepCompiler;
use tallow::nn::{Linear, Sequential};
use tallow::prelude::*;
use tallow::tensor::rng;

fn main() -> Result<()> {
    let _profile = tallow::profile::from_env()?;
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder())?;
    let images = random_images(64)?;

    // Compiled, a model is a module as before.
    let compiled = compile(&model, &images, CompileOptions::default())?;
    let (fast, slow) = (
        compiled.forward_t(&images, false)?,
        model.forward_t(&images, false)?,
    );
    let difference = (fast - slow)?.abs()?.max_all()?.to_scalar::<f32>()?;
    ensure!(
        difference < 1e-4,
        "compiled and eager differ by {difference}"
    );
    println!("compiled inference differs from eager by {difference:.1e}");
    println!("{:?}\n", compiled.metrics());

    // What compilation made of it.
    println!("{}", explain(&model, &images, &CompileOptions::default())?);

    a_break_and_its_cure()?;
    modes(&model, &params, &images)
}

/// Two linear layers with an activation between.
struct Head {
    hidden: Linear,
    out: Linear,
    /// Whether the activation is candle's own, which nobody records.
    raw: bool,
}

impl ModuleT for Head {
    fn forward_t(&self, xs: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let hidden = self.hidden.forward_t(xs, train)?;
        let hidden = if self.raw {
            hidden.relu()?
        } else {
            ops::relu(&hidden)?
        };
        self.out.forward_t(&hidden, train)
    }
}

/// A raw candle operation breaks the graph; the error says where and what to write instead.
fn a_break_and_its_cure() -> Result<()> {
    let params = Params::f32_cpu();
    let vb = params.builder();
    let mut head = Head {
        hidden: Linear::new(8, 16, vb.pp("hidden"))?,
        out: Linear::new(16, 3, vb.pp("out"))?,
        raw: true,
    };
    let xs = Tensor::ones((2, 8), DType::F32, &Device::Cpu)?;
    match compile(&head, &xs, CompileOptions::default()) {
        Err(error) => println!("{error}\n"),
        Ok(_) => bail!("a raw operation was recorded"),
    }
    // Without `fullgraph` it runs all the same, eagerly, and says so.
    let eager = compile(&head, &xs, CompileOptions::default().fullgraph(false))?;
    println!("whole model eager: {}", counts(&eager.metrics()));
    // A raw layer of a `Sequential`, or behind a `Layer`, runs as it is; the layers around it are compiled.
    let chain = Sequential::builder(params.builder().pp("chain"))
        .layer(|vb| Linear::new(8, 16, vb))?
        .then(|xs: &Tensor| xs.relu())
        .layer(|vb| Linear::new(16, 3, vb))?
        .build();
    let partly = compile(&chain, &xs, CompileOptions::default().fullgraph(false))?;
    println!("one layer eager: {}", counts(&partly.metrics()));
    head.raw = false;
    println!(
        "cured: {} kernels\n",
        compile(&head, &xs, CompileOptions::default())?
            .metrics()
            .kernels
    );
    Ok(())
}

fn counts(metrics: &tallow::compile::Metrics) -> String {
    format!(
        "{} kernels, {} fallbacks",
        metrics.kernels, metrics.fallbacks
    )
}

/// A training step, eager and in each mode. `Trainer::builder(..).compile(options)` does the same for a training.
fn modes(model: &SimpleCifar, params: &Params, images: &Tensor) -> Result<()> {
    let labels: Vec<u32> = (0..images.dims()[0] as u32)
        .map(|index| index % 10)
        .collect();
    let labels = Tensor::new(labels, &Device::Cpu)?;
    let forward = |images: &Tensor, labels: &Tensor| {
        let outputs = model.forward_t(images, true)?;
        Ok((
            ops::cross_entropy(&outputs, labels, &CrossEntropyConfig::default())?,
            outputs,
        ))
    };
    let eager = median(|| {
        let (loss, _) = forward(images, &labels)?;
        loss.backward()?;
        Ok(())
    })?;
    println!("{:16} {:7.1} ms a step", "eager", eager.as_secs_f64() * 1e3);
    for mode in [Mode::Default, Mode::ReduceOverhead, Mode::MaxAutotune] {
        let mut steps = StepCompiler::new(CompileOptions::default().mode(mode))?;
        let time = median(|| {
            steps.run(params, images, &labels, forward)?;
            Ok(())
        })?;
        println!(
            "{:16} {:7.1} ms a step, {:.2} times as fast, {:.0} MB of values, compiled in {:.0} ms",
            format!("{mode:?}"),
            time.as_secs_f64() * 1e3,
            eager.as_secs_f64() / time.as_secs_f64(),
            steps.metrics().planned_memory as f64 / 1e6,
            steps.metrics().compile_time.as_secs_f64() * 1e3
        );
    }
    Ok(())
}

/// The median of seven runs after a first one.
fn median(mut run: impl FnMut() -> Result<()>) -> Result<Duration> {
    run()?;
    let mut times = Vec::new();
    for _ in 0..7 {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[3])
}

fn random_images(count: usize) -> Result<Tensor> {
    let mut stream = rng::Stream::new(rng::key(42, rng::Purpose::Synthetic, 0, 0));
    let values: Vec<f32> = (0..count * 3 * 32 * 32)
        .map(|_| stream.normal() as f32)
        .collect();
    Ok(Tensor::from_vec(values, (count, 3, 32, 32), &Device::Cpu)?)
}
