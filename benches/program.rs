//! Frozen programs, in f32 and int8, timed beside onnxruntime on the same networks, alternating.
//!
//!     TALLOW_PYTHON=python cargo bench -p tallow --bench program            # all cases
//!     TALLOW_PYTHON=python cargo bench -p tallow --bench program -- C-1     # some; `--breakdown` adds the time of each kernel
//!
//! Cases: A = SimpleCifar, 3x32x32; C = ResNet-18 at 224; the number is the batch size. Without a Python that has onnx and
//! onnxruntime only our times are printed. Weights are drawn at random and inputs are noise: no time depends on them.
//! onnxruntime runs with as many threads, in f32 the file that Tallow writes, in int8 the faster of that and of what its own
//! `quantize_static` makes of the f32 file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::ModuleT;
use tallow::compile::Options;
use tallow::export::{FreezeOptions, Program, QuantizeOptions, Runner, onnx, quantize};
use tallow::nn::{ResNet, SimpleCifar, Stem};
use tallow::tensor::params::Params;

struct Case {
    name: &'static str,
    model: &'static str,
    batch: usize,
    pixels: usize,
}

const CASES: [Case; 4] = [
    Case {
        name: "A-1",
        model: "A",
        batch: 1,
        pixels: 32,
    },
    Case {
        name: "A-128",
        model: "A",
        batch: 128,
        pixels: 32,
    },
    Case {
        name: "C-1",
        model: "C",
        batch: 1,
        pixels: 224,
    },
    Case {
        name: "C-8",
        model: "C",
        batch: 8,
        pixels: 224,
    },
];

/// Rounds of both programs.
const ROUNDS: usize = 3;

fn main() -> Result<()> {
    tallow::tensor::memory::keep_freed();
    let names: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let folder = tempfile::tempdir()?;
    for case in CASES
        .iter()
        .filter(|case| names.is_empty() || names.iter().any(|n| n == case.name))
    {
        let params = Params::new(1, DType::F32, &Device::Cpu);
        let model: Box<dyn ModuleT> = match case.model {
            "A" => Box::new(SimpleCifar::new(3, 10, params.builder())?),
            _ => Box::new(ResNet::resnet18(1000, Stem::ImageNet, params.builder())?),
        };
        let shape = (case.batch, 3, case.pixels, case.pixels);
        let images = Tensor::randn(0f32, 1., shape, &Device::Cpu)?;
        let program = FreezeOptions::new()
            .params(&params)
            .freeze(&Boxed(model), &images)?;
        let quantized = quantize(
            &program,
            std::slice::from_ref(&images),
            &QuantizeOptions::new(),
        )?;
        let floats = folder.path().join(format!("{}.onnx", case.name));
        let whole = folder.path().join(format!("{}-int8.onnx", case.name));
        onnx::write(&program, &floats)?;
        onnx::write(&quantized.program, &whole)?;
        compare(
            case.name,
            "f32",
            &program,
            &images,
            &[(&floats, "as written")],
        )?;
        let ways = [(&whole, "as written"), (&floats, "quantize")];
        compare(case.name, "int8", &quantized.program, &images, &ways)?;
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

/// Prints medians of both programs and their ratio.
fn compare(
    name: &str,
    precision: &str,
    program: &Program,
    images: &Tensor,
    ways: &[(&PathBuf, &str)],
) -> Result<()> {
    let runner = program.compile(Options::default())?;
    let mut ours = Vec::new();
    let mut theirs: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        ours.push(sample(|| Ok(runner.forward(images).map(drop)?))?);
        for ((file, way), times) in ways.iter().zip(&mut theirs) {
            times.extend(onnxruntime(file, way)?);
        }
    }
    let ours = median(ours);
    if std::env::args().any(|argument| argument == "--breakdown") {
        breakdown(&runner, images)?;
    }
    let best = theirs.into_iter().filter(|times| !times.is_empty());
    match best.map(median).min_by(f64::total_cmp) {
        Some(best) => println!(
            "{name:6} {precision:4} {ours:9.3} ms, onnxruntime {best:9.3} ms: {:.2} times as fast",
            best / ours
        ),
        None => println!("{name:6} {precision:4} {ours:9.3} ms"),
    }
    Ok(())
}

/// The mean time of each kernel.
fn breakdown(runner: &Runner, images: &Tensor) -> Result<()> {
    for graph in runner.graphs() {
        graph.measure(true);
        for _ in 0..20 {
            graph.run(std::slice::from_ref(images))?;
        }
        let mut times = graph.kernel_times();
        graph.measure(false);
        times.sort_by_key(|time| std::cmp::Reverse(time.time));
        for time in times.iter().filter(|time| time.runs > 0) {
            let milliseconds = time.time.as_secs_f64() * 1e3 / time.runs as f64;
            println!("{milliseconds:9.3} ms  {:24} {}", time.kernel, time.module);
        }
    }
    Ok(())
}

/// The median time of runs for some seconds, in milliseconds.
fn sample(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < 5 || start.elapsed() < Duration::from_secs(4) {
        let one = Instant::now();
        run()?;
        times.push(one.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The median time that onnxruntime takes, in milliseconds, if there is one.
fn onnxruntime(file: &Path, way: &str) -> Result<Option<f64>> {
    let Some(python) = std::env::var_os("TALLOW_PYTHON") else {
        return Ok(None);
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/onnxruntime_program.py");
    let threads = std::thread::available_parallelism()?.get().to_string();
    let output = Command::new(python)
        .arg(script)
        .arg(file)
        .args([way, &threads])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    if line == "no onnxruntime" {
        return Ok(None);
    }
    ensure!(
        output.status.success(),
        "onnxruntime failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Some(line.parse().with_context(|| {
        format!("onnxruntime printed {line:?}")
    })?))
}
