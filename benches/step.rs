//! Whole training steps and inference, timed; one JSON line a case, in the form of other frameworks' benches.
//!
//! Cases: A = SimpleCifar, 3x32x32, batch 128. B = ResNet-18 with the CIFAR stem, batch 32.
//! C = ResNet-18 at 224. A train step is forward, cross entropy, backward and AdamW.
//! `cargo xtask bench` runs each case in a process of its own, so that peak memory is the case's.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use candle_core::{DType, Device, Tensor};
use candle_nn::ModuleT;
use tallow::nn::{ResNet, SimpleCifar, Stem};
use tallow::tensor::ops::{self, CrossEntropyConfig};
use tallow::tensor::params::Params;
use tallow::tensor::{memory, rng};
use tallow::train::{AdamW, Optimizer};

struct Case {
    name: &'static str,
    model: &'static str,
    train: bool,
    batch: usize,
    pixels: usize,
    classes: usize,
}

const CASES: [Case; 7] = [
    Case {
        name: "A-train",
        model: "A",
        train: true,
        batch: 128,
        pixels: 32,
        classes: 10,
    },
    Case {
        name: "B-train",
        model: "B",
        train: true,
        batch: 32,
        pixels: 32,
        classes: 10,
    },
    Case {
        name: "C-train",
        model: "C",
        train: true,
        batch: 8,
        pixels: 224,
        classes: 1000,
    },
    Case {
        name: "C-inf1",
        model: "C",
        train: false,
        batch: 1,
        pixels: 224,
        classes: 1000,
    },
    Case {
        name: "C-inf8",
        model: "C",
        train: false,
        batch: 8,
        pixels: 224,
        classes: 1000,
    },
    Case {
        name: "A-inf1",
        model: "A",
        train: false,
        batch: 1,
        pixels: 32,
        classes: 10,
    },
    Case {
        name: "A-inf128",
        model: "A",
        train: false,
        batch: 128,
        pixels: 32,
        classes: 10,
    },
];

/// Times of single runs, after warm-up, in milliseconds.
fn sample(budget: Duration, mut run: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    for _ in 0..2 {
        run()?;
    }
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < 5 || (times.len() < 200 && start.elapsed() < budget) {
        let one = Instant::now();
        run()?;
        times.push(one.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Peak resident memory of this process in MB, where the system tells it.
fn peak_memory_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some((line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0).round())
}

fn build(case: &Case, params: &Params) -> Result<Box<dyn ModuleT>> {
    let vb = params.builder();
    Ok(match case.model {
        "A" => Box::new(SimpleCifar::new(3, case.classes, vb)?),
        "B" => Box::new(ResNet::resnet18(case.classes, Stem::Cifar, vb)?),
        _ => Box::new(ResNet::resnet18(case.classes, Stem::ImageNet, vb)?),
    })
}

fn run(case: &Case) -> Result<()> {
    memory::keep_freed();
    let device = Device::Cpu;
    let params = Params::new(42, DType::F32, &device);
    let model = build(case, &params)?;
    let mut stream = rng::Stream::new(7);
    let pixels = (0..case.batch * 3 * case.pixels * case.pixels)
        .map(|_| stream.normal() as f32)
        .collect::<Vec<f32>>();
    let images = Tensor::from_vec(pixels, (case.batch, 3, case.pixels, case.pixels), &device)?;
    let labels = (0..case.batch as u32)
        .map(|index| index % case.classes as u32)
        .collect::<Vec<_>>();
    let labels = Tensor::new(labels, &device)?;
    let before = peak_memory_mb();
    let first = Instant::now();
    let mut first_step = None;
    let mut optimizer = AdamW::new(1e-3);
    let times = sample(Duration::from_secs(6), || {
        if case.train {
            let logits = model.forward_t(&images, true)?;
            let loss = ops::cross_entropy(&logits, &labels, &CrossEntropyConfig::default())?;
            let mut grads = loss.backward()?;
            optimizer.step(&params.trainable(), &mut grads)?;
        } else {
            model.forward_t(&images, false)?;
        }
        first_step.get_or_insert_with(|| first.elapsed().as_secs_f64());
        Ok(())
    })?;
    let median = times[times.len() / 2];
    let line = serde_json::json!({
        "framework": "tallow", "mode": "eager", "model": case.model,
        "phase": if case.train { "train" } else { "infer" }, "batch": case.batch,
        "threads": rayon::current_num_threads(), "images_per_s": case.batch as f64 / median * 1e3,
        "ms_median": median, "ms_min": times[0], "n": times.len(), "first_step_s": first_step,
        "rss_peak_mb": peak_memory_mb(), "rss_before_step_mb": before,
    });
    println!("{line}");
    Ok(())
}

fn main() -> Result<()> {
    // cargo adds flags such as `--bench`; the case's name is what has no dash.
    let names: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    for name in &names {
        match CASES.iter().find(|case| case.name == name) {
            Some(case) => run(case)?,
            None => bail!(
                "no case `{name}`; the cases are {}",
                CASES.map(|case| case.name).join(", ")
            ),
        }
    }
    if names.is_empty() {
        eprintln!(
            "name a case, or use `cargo xtask bench`: {}",
            CASES.map(|case| case.name).join(", ")
        );
    }
    Ok(())
}
