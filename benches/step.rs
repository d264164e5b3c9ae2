//! Whole training steps and inference, timed; one JSON line a case, in the form of other frameworks' benches.
//!
//! Cases: A = SimpleCifar, 3x32x32, batch 128. B = ResNet-18 with the CIFAR stem, batch 32.
//! C = ResNet-18 at 224. A train step is forward, cross entropy, backward and AdamW.
//! Modes: `eager`, `default`, `reduce-overhead`, `max-autotune`, and `bf16`: `default` with products in bfloat16.
//! `--breakdown` adds the time of every kernel of a plan. `--profile` alternates runs with and without a profiler, and prints
//! both medians.
//! `cargo xtask bench` runs each case in a process of its own, so that peak memory is the case's.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use candle_core::{DType, Device, Tensor};
use candle_nn::ModuleT;
use tallow::compile::{InferenceCompiler, KernelTime, Mode, Options, Precision, StepCompiler};
use tallow::nn::{ResNet, SimpleCifar, Stem};
use tallow::profile::Profiler;
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

fn run(case: &Case, mode: RunMode, extra: Extra) -> Result<()> {
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
    let mut compiled = match mode.options() {
        Some(options) => Some((
            StepCompiler::new(options.clone())?,
            InferenceCompiler::new(options)?,
        )),
        None => None,
    };
    let mut once = || -> Result<()> {
        match &mut compiled {
            Some((steps, _)) if case.train => {
                let mut step = steps.run(&params, &images, &labels, |images, labels| {
                    let logits = model.forward_t(images, true)?;
                    let loss = ops::cross_entropy(&logits, labels, &CrossEntropyConfig::default())?;
                    Ok((loss, logits))
                })?;
                optimizer.step(&params.trainable(), &mut step.gradients)?;
            }
            Some((_, inference)) => {
                inference.run(&images, |images| model.forward_t(images, false))?;
            }
            None if case.train => {
                let logits = model.forward_t(&images, true)?;
                let loss = ops::cross_entropy(&logits, &labels, &CrossEntropyConfig::default())?;
                let mut grads = loss.backward()?;
                optimizer.step(&params.trainable(), &mut grads)?;
            }
            None => {
                model.forward_t(&images, false)?;
            }
        }
        first_step.get_or_insert_with(|| first.elapsed().as_secs_f64());
        Ok(())
    };
    if extra.profile {
        return profiled(case, mode, &mut once);
    }
    let times = sample(Duration::from_secs(6), &mut once)?;
    let compile = compiled.as_ref().map(|(steps, inference)| {
        (steps.metrics().compile_time + inference.metrics().compile_time).as_secs_f64()
    });
    let median = times[times.len() / 2];
    let line = serde_json::json!({
        "framework": "tallow", "mode": mode.name(), "model": case.model,
        "phase": if case.train { "train" } else { "infer" }, "batch": case.batch,
        "threads": rayon::current_num_threads(), "images_per_s": case.batch as f64 / median * 1e3,
        "ms_median": median, "ms_min": times[0], "n": times.len(), "first_step_s": first_step, "compile_s": compile,
        "rss_peak_mb": peak_memory_mb(), "rss_before_step_mb": before,
    });
    println!("{line}");
    if let Some((steps, inference)) = &mut compiled
        && extra.breakdown
    {
        steps.measure(true);
        inference.measure(true);
        for _ in 0..5 {
            if case.train {
                steps.run(&params, &images, &labels, |_, _| {
                    unreachable!("the plan is there")
                })?;
            } else {
                inference.run(&images, |_| unreachable!("the plan is there"))?;
            }
        }
        print_times(if case.train {
            steps.kernel_times()
        } else {
            inference.kernel_times()
        });
    }
    Ok(())
}

/// Runs with a profiler and without one in turn, and prints what it costs to be recorded.
fn profiled(case: &Case, mode: RunMode, run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..3 {
        run()?;
    }
    let mut times = [Vec::new(), Vec::new()];
    let (start, mut spans) = (Instant::now(), 0);
    while times[0].len() < 10 || start.elapsed() < Duration::from_secs(20) {
        for (on, times) in times.iter_mut().enumerate() {
            let builder = Profiler::builder().measure_machine(false);
            let profiler = (on == 1).then(|| builder.start()).transpose()?;
            // The first run after a switch pays for it.
            run()?;
            for _ in 0..3 {
                let one = Instant::now();
                run()?;
                times.push(one.elapsed().as_secs_f64() * 1e3);
            }
            spans = profiler.map_or(spans, |profiler| profiler.finish().spans.len() / 4);
        }
    }
    let [off, on] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let line = serde_json::json!({
        "case": case.name, "mode": mode.name(), "ms_off": off, "ms_on": on, "overhead": on / off - 1.0, "spans_a_run": spans,
    });
    println!("{line}");
    Ok(())
}

/// What is done besides timing.
#[derive(Clone, Copy)]
struct Extra {
    breakdown: bool,
    profile: bool,
}

/// A line a kernel: time a run, share, and the rate at which the operation's definition is worked off.
fn print_times(mut times: Vec<KernelTime>) {
    let each = |time: &KernelTime| time.time.as_secs_f64() / time.runs.max(1) as f64;
    let total: f64 = times.iter().map(each).sum();
    times.sort_by(|a, b| each(b).total_cmp(&each(a)));
    for time in &times {
        let seconds = each(time);
        println!(
            "{:8.3} ms {:5.1} % {:7.1} GFLOP/s  {:24} {}",
            seconds * 1e3,
            100.0 * seconds / total,
            time.flops as f64 / seconds / 1e9,
            time.kernel,
            time.module
        );
    }
    println!("{:8.3} ms in all", total * 1e3);
}

/// How the model is run.
#[derive(Clone, Copy)]
enum RunMode {
    Eager,
    Compiled(Mode),
    Bf16,
}

impl RunMode {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "eager" => Self::Eager,
            "default" => Self::Compiled(Mode::Default),
            "reduce-overhead" => Self::Compiled(Mode::ReduceOverhead),
            "max-autotune" => Self::Compiled(Mode::MaxAutotune),
            "bf16" => Self::Bf16,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Compiled(Mode::Default) => "default",
            Self::Compiled(Mode::ReduceOverhead) => "reduce-overhead",
            Self::Compiled(Mode::MaxAutotune) => "max-autotune",
            Self::Bf16 => "bf16",
        }
    }

    fn options(self) -> Option<Options> {
        match self {
            Self::Eager => None,
            Self::Compiled(mode) => Some(Options::default().mode(mode)),
            Self::Bf16 => Some(Options::default().precision(Precision::Bf16)),
        }
    }
}

fn main() -> Result<()> {
    // cargo adds flags such as `--bench`; names of cases and modes are what has no dash.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let extra = Extra {
        breakdown: has("--breakdown"),
        profile: has("--profile"),
    };
    let names: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let mode = names.iter().find_map(|name| RunMode::parse(name));
    for name in names.iter().filter(|name| RunMode::parse(name).is_none()) {
        match CASES.iter().find(|case| case.name == name.as_str()) {
            Some(case) => run(case, mode.unwrap_or(RunMode::Eager), extra)?,
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
