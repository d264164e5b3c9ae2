//! From a program's file to its first output: one JSON line a case, the median of several processes' worth of loads in one.
//!
//!     cargo bench -p tallow --bench load
//!
//! The file is in the page cache, as it is after the first load on a machine. Memory is what the process holds that no file
//! stands behind, and what it has mapped.

use std::time::Instant;

use anyhow::{Context, Result};
use candle_core::{DType, Device, Tensor};
use candle_nn::ModuleT;
use tallow::compile::Options;
use tallow::export::{FreezeOptions, Program};
use tallow::nn::{ResNet, SimpleCifar, Stem};
use tallow::tensor::params::Params;

const ROUNDS: usize = 11;

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let cases: [(&str, usize, bool); 3] = [
        ("resnet18_224", 224, true),
        ("resnet18_cifar", 32, true),
        ("simple_cifar", 32, false),
    ];
    for (name, pixels, resnet) in cases {
        let path = folder.path().join(name);
        let image =
            Tensor::rand(0f32, 1., (1, 3, pixels, pixels), &Device::Cpu)?.to_dtype(DType::F32)?;
        let params = Params::f32_cpu();
        let model: Box<dyn ModuleT> = match (resnet, pixels) {
            (true, 224) => Box::new(ResNet::resnet18(1000, Stem::ImageNet, params.builder())?),
            (true, _) => Box::new(ResNet::resnet18(10, Stem::Cifar, params.builder())?),
            (false, _) => Box::new(SimpleCifar::new(3, 10, params.builder())?),
        };
        let model = Boxed(model);
        FreezeOptions::new()
            .params(&params)
            .freeze(&model, &image)?
            .save(&path)?;
        drop((model, params));
        measure(name, &path, &image)?;
    }
    Ok(())
}

/// A model behind one type.
struct Boxed(Box<dyn ModuleT>);

impl ModuleT for Boxed {
    fn forward_t(&self, xs: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        self.0.forward_t(xs, train)
    }
}

fn measure(name: &str, path: &std::path::Path, image: &Tensor) -> Result<()> {
    let mut times = Vec::new();
    let (mut anonymous, mut mapped) = (0, 0);
    for _ in 0..ROUNDS {
        let before = (status("RssAnon:")?, status("RssFile:")?);
        let start = Instant::now();
        let program = Program::load(path)?;
        let load = start.elapsed();
        let runner = program.compile(Options::default())?;
        let compile = start.elapsed();
        runner.forward(image)?;
        let first = start.elapsed();
        let second = Instant::now();
        runner.forward(image)?;
        let again = second.elapsed();
        times.push([load, compile, first, again].map(|time| time.as_secs_f64() * 1e3));
        anonymous = status("RssAnon:")?.saturating_sub(before.0);
        mapped = status("RssFile:")?.saturating_sub(before.1);
    }
    let median = |part: usize| {
        let mut list: Vec<f64> = times.iter().map(|times| times[part]).collect();
        list.sort_by(f64::total_cmp);
        (list[list.len() / 2] * 100.0).round() / 100.0
    };
    let line = serde_json::json!({
        "case": name,
        "file_bytes": std::fs::metadata(path)?.len(),
        "loaded_ms": median(0),
        "compiled_ms": median(1),
        "first_output_ms": median(2),
        "next_output_ms": median(3),
        "anonymous_bytes": anonymous,
        "mapped_bytes": mapped,
    });
    println!("{line}");
    Ok(())
}

/// A line of Linux's /proc/self/status, in bytes; 0 elsewhere.
fn status(name: &str) -> Result<u64> {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else {
        return Ok(0);
    };
    let line = text.lines().find(|line| line.starts_with(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    let kilobytes: u64 = kilobytes.unwrap_or("0").parse().context("a number")?;
    Ok(1024 * kilobytes)
}
