//! `cargo xtask bench`: runs the benches and prints one JSON line a figure.
//!
//! Two kinds of bench lie in `benches/`: `step` times whole training steps and inference, a process a case;
//! `kernels` is a criterion bench of single operations. With `--vs` the step cases alternate
//! with another program that prints lines of the same form, and the ratio of medians is printed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::cargo;

const USAGE: &str = "\
Usage: cargo xtask bench [options]

  --case NAME     only this step case (A-train, B-train, C-train, C-inf1, C-inf8, A-inf1, A-inf128); may repeat
  --mode NAME     how the model runs: eager, default, reduce-overhead, max-autotune, bf16 (default `default`)
  --vs COMMAND    alternate with COMMAND (a program and its arguments; the case's name is added as the last one),
                  which prints JSON lines with `images_per_s`; prints the ratio of medians
  --vs torch      alternate with PyTorch in its fastest mode, through benches/torch_step.py and the Python that
                  TALLOW_PYTHON names; with `--mode bf16` under autocast to bfloat16
  --rounds N      runs of each program with --vs (default 5)
  --table         ResNet-18's training step (case B-train) eager and in every mode: time, gain, memory, compile time
  --kernels       only the criterion bench of single operations
  --step          only the step bench
";

/// How the step bench runs a model.
const MODES: [&str; 5] = [
    "eager",
    "default",
    "reduce-overhead",
    "max-autotune",
    "bf16",
];

/// The modes of PyTorch that are tried.
const TORCH_MODES: [&str; 6] = [
    "eager",
    "eager_channels_last",
    "compile",
    "compile_channels_last",
    "compile_max_autotune",
    "compile_max_autotune_channels_last",
];

/// The cases of the step bench, in the order in which they run.
const CASES: &[&str] = &[
    "A-train", "B-train", "C-train", "C-inf1", "C-inf8", "A-inf1", "A-inf128",
];

/// What to alternate with.
enum Versus {
    Command(Vec<String>),
    Torch,
}

#[derive(Default)]
struct Options {
    cases: Vec<String>,
    mode: String,
    versus: Option<Versus>,
    rounds: usize,
    table: bool,
    kernels: bool,
    step: bool,
}

/// Parses the options and runs what they ask for.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return Ok(());
    }
    let options = parse(args)?;
    if options.table {
        return table(&build_step_bench(root)?);
    }
    if options.step {
        let program = build_step_bench(root)?;
        let ours = [program.display().to_string(), options.mode.clone()];
        for case in &options.cases {
            match &options.versus {
                None => println!("{}", measure(&ours, case)?),
                Some(Versus::Command(other)) => alternate(&ours, other, case, options.rounds)?,
                Some(Versus::Torch) => {
                    let fastest = fastest_torch(root, case, options.mode == "bf16")?;
                    alternate(&ours, &fastest, case, options.rounds)?;
                }
            }
        }
    }
    if options.kernels {
        kernels(root)?;
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options {
        mode: "default".to_string(),
        rounds: 5,
        ..Options::default()
    };
    let mut rest = args.iter();
    while let Some(flag) = rest.next() {
        let mut value = || {
            rest.next()
                .with_context(|| format!("{flag} needs a value\n\n{USAGE}"))
        };
        match flag.as_str() {
            "--case" => {
                let case = value()?;
                if !CASES.contains(&case.as_str()) {
                    bail!("no case `{case}`; the cases are {}", CASES.join(", "));
                }
                options.cases.push(case.clone());
            }
            "--mode" => {
                let mode = value()?;
                if !MODES.contains(&mode.as_str()) {
                    bail!("no mode `{mode}`; the modes are {}", MODES.join(", "));
                }
                options.mode.clone_from(mode);
            }
            "--vs" => {
                let words = value()?.split_whitespace().map(str::to_string);
                let words: Vec<String> = words.collect();
                options.versus = Some(match words.as_slice() {
                    [only] if only == "torch" => Versus::Torch,
                    _ => Versus::Command(words),
                });
            }
            "--table" => options.table = true,
            "--rounds" => {
                options.rounds = value()?.parse().context("--rounds takes a whole number")?
            }
            "--kernels" => options.kernels = true,
            "--step" => options.step = true,
            other => bail!("unknown option `{other}`\n\n{USAGE}"),
        }
    }
    if options.rounds == 0 {
        bail!("--rounds takes a whole number from 1, found 0");
    }
    if !options.kernels && !options.step {
        options.step = true;
        options.kernels = options.cases.is_empty() && options.versus.is_none();
    }
    if options.cases.is_empty() {
        options.cases = CASES.iter().map(|case| case.to_string()).collect();
    }
    Ok(options)
}

/// Builds `benches/step.rs` and gives the path of its program.
fn build_step_bench(root: &Path) -> Result<PathBuf> {
    let output = cargo()
        .args([
            "bench",
            "-p",
            "tallow",
            "--bench",
            "step",
            "--no-run",
            "--message-format",
            "json",
        ])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("building the step bench failed");
    }
    let text = String::from_utf8(output.stdout)?;
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "step")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo named no program for the step bench")
}

/// Runs `command CASE` and gives the last JSON line with a figure that it prints.
fn measure(command: &[String], case: &str) -> Result<Value> {
    let (program, args) = command.split_first().context("--vs names no program")?;
    let output = Command::new(program)
        .args(args)
        .arg(case)
        // glibc keeps freed memory, as our own bench asks it to: the strongest setting of whoever allocates a tensor.
        .env("MALLOC_MMAP_THRESHOLD_", "4294967296")
        .env("MALLOC_TRIM_THRESHOLD_", "8589934592")
        .env("MALLOC_TOP_PAD_", "67108864")
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("running {program}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .rfind(|line| line["images_per_s"].is_number())
        .with_context(|| format!("`{program} {case}` printed no figure ({})", output.status))
}

/// The command of PyTorch in the mode that is fastest for a case; one that fails is passed over.
fn fastest_torch(root: &Path, case: &str, bf16: bool) -> Result<Vec<String>> {
    let python = std::env::var("TALLOW_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let script = root.join("benches/torch_step.py").display().to_string();
    let precision = if bf16 { "_bf16" } else { "" };
    let command = |mode: &str| vec![python.clone(), script.clone(), format!("{mode}{precision}")];
    let mut best: Option<(f64, Vec<String>)> = None;
    for mode in TORCH_MODES {
        let Ok(line) = measure(&command(mode), case) else {
            eprintln!("{mode} gave no figure for {case}");
            continue;
        };
        println!("{line}");
        let speed = line["images_per_s"].as_f64().unwrap_or(0.0);
        if best.as_ref().is_none_or(|(fastest, _)| speed > *fastest) {
            best = Some((speed, command(mode)));
        }
    }
    let (_, command) = best.with_context(|| {
        format!(
            "`{python} {script}` ran in no mode; set TALLOW_PYTHON to a Python with torch and torchvision"
        )
    })?;
    Ok(command)
}

/// ResNet-18's training step, eager and in each mode.
fn table(program: &Path) -> Result<()> {
    println!("| mode | ms a step | gain | peak memory MB | compile s |");
    println!("|---|--:|--:|--:|--:|");
    let mut eager = None;
    for mode in MODES {
        let line = measure(
            &[program.display().to_string(), mode.to_string()],
            "B-train",
        )?;
        let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
        let time = number("ms_median");
        let eager = *eager.get_or_insert(time);
        let compile = line["compile_s"].as_f64();
        println!(
            "| {mode} | {time:.0} | {:.2} | {:.0} | {} |",
            eager / time,
            number("rss_peak_mb"),
            compile.map_or("-".to_string(), |seconds| format!("{seconds:.2}"))
        );
    }
    Ok(())
}

/// A B A B ..., then a line for each side's median and one for the ratio.
fn alternate(ours: &[String], other: &[String], case: &str, rounds: usize) -> Result<()> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        a.push(measure(ours, case)?);
        b.push(measure(other, case)?);
    }
    let (a, b) = (median_line(a), median_line(b));
    let speed = |line: &Value| line["images_per_s"].as_f64().unwrap_or(f64::NAN);
    println!("{a}\n{b}");
    println!(
        "{}",
        json!({"case": case, "rounds": rounds, "framework": a["framework"], "versus": b["framework"],
            "images_per_s": speed(&a), "versus_images_per_s": speed(&b), "ratio": speed(&a) / speed(&b)})
    );
    Ok(())
}

/// The line whose speed is the median of all.
fn median_line(mut lines: Vec<Value>) -> Value {
    lines.sort_by(|x, y| {
        let speed = |line: &Value| line["images_per_s"].as_f64().unwrap_or(0.0);
        speed(x).total_cmp(&speed(y))
    });
    lines.swap_remove(lines.len() / 2)
}

/// Runs the criterion bench and turns what it left in `target/criterion` into JSON lines.
fn kernels(root: &Path) -> Result<()> {
    let status = cargo()
        .args(["bench", "-p", "tallow", "--bench", "kernels"])
        .current_dir(root)
        .stdout(std::io::stderr())
        .status()?;
    if !status.success() {
        bail!("the kernels bench ended with {status}");
    }
    let mut results = Vec::new();
    collect_estimates(&target_dir(root)?.join("criterion"), &mut results)?;
    results.sort_by_key(|line| line["model"].to_string() + &line["phase"].to_string());
    for line in results {
        println!("{line}");
    }
    Ok(())
}

fn target_dir(root: &Path) -> Result<PathBuf> {
    let output = cargo()
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(root)
        .output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(metadata["target_directory"]
        .as_str()
        .context("no target directory")?
        .into())
}

fn collect_estimates(folder: &Path, results: &mut Vec<Value>) -> Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name == "new") {
            let read = |name: &str| -> Result<Value> {
                Ok(serde_json::from_slice(&std::fs::read(path.join(name))?)?)
            };
            let (benchmark, estimates) = (read("benchmark.json")?, read("estimates.json")?);
            let nanoseconds = estimates["median"]["point_estimate"]
                .as_f64()
                .unwrap_or(f64::NAN);
            results.push(
                json!({"framework": "tallow", "mode": "kernel", "model": benchmark["group_id"],
                "phase": benchmark["function_id"], "ms_median": nanoseconds / 1e6}),
            );
        } else if path.is_dir() {
            collect_estimates(&path, results)?;
        }
    }
    Ok(())
}
