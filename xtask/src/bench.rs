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
  --vs COMMAND    alternate with COMMAND (a program and its arguments; the case's name is added as the last one),
                  which prints JSON lines with `images_per_s`; prints the ratio of medians
  --rounds N      runs of each program with --vs (default 5)
  --kernels       only the criterion bench of single operations
  --step          only the step bench
";

/// The cases of the step bench, in the order in which they run.
const CASES: &[&str] = &[
    "A-train", "B-train", "C-train", "C-inf1", "C-inf8", "A-inf1", "A-inf128",
];

#[derive(Default)]
struct Options {
    cases: Vec<String>,
    versus: Option<Vec<String>>,
    rounds: usize,
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
    if options.step {
        let program = build_step_bench(root)?;
        for case in &options.cases {
            match &options.versus {
                None => println!("{}", measure(&[program.display().to_string()], case)?),
                Some(other) => alternate(&program, other, case, options.rounds)?,
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
            "--vs" => {
                options.versus = Some(value()?.split_whitespace().map(str::to_string).collect())
            }
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
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("running {program}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .rfind(|line| line["images_per_s"].is_number())
        .with_context(|| format!("`{program} {case}` printed no figure ({})", output.status))
}

/// A B A B ..., then a line for each side's median and one for the ratio.
fn alternate(program: &Path, other: &[String], case: &str, rounds: usize) -> Result<()> {
    let ours = [program.display().to_string()];
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        a.push(measure(&ours, case)?);
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
