//! `cargo xtask ci`: every check a change must pass, in order of how fast each one fails.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::{cargo, examples, layers, tidy};

/// One check: its name and what it runs.
struct Step {
    name: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

const fn step(name: &'static str, args: &'static [&'static str]) -> Step {
    Step {
        name,
        args,
        env: &[],
    }
}

const STEPS: &[Step] = &[
    step("format", &["fmt", "--all", "--check"]),
    step(
        "clippy",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ),
    step(
        "tests",
        &[
            "test",
            "--workspace",
            "--lib",
            "--bins",
            "--tests",
            "--examples",
        ],
    ),
    step("doc tests", &["test", "--workspace", "--doc"]),
    Step {
        name: "rustdoc",
        args: &["doc", "--workspace", "--no-deps"],
        env: &[("RUSTDOCFLAGS", "-D warnings -D missing-docs")],
    },
];

/// Slow checks: optional features, optimised builds, benches that at least run; examples follow them.
const FULL_STEPS: &[Step] = &[
    // Together and of the whole workspace, so that nothing below them is built once more.
    step(
        "features download, parquet, turbojpeg",
        &[
            "test",
            "--workspace",
            "--features",
            "tallow/download,tallow/parquet,tallow/turbojpeg",
            "--test",
            "sources",
            "--test",
            "decode",
        ],
    ),
    Step {
        name: "optimised tests",
        args: &[
            "test",
            "--release",
            "--workspace",
            "--tests",
            "--",
            "--include-ignored",
        ],
        // How often a training is killed and resumed.
        env: &[("TALLOW_KILLS", "20")],
    },
    step(
        "benches run",
        &[
            "bench", "-p", "tallow", "--bench", "kernels", "--", "--test",
        ],
    ),
];

/// Runs all checks; the first that fails ends the run with its name.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    let full = match args {
        [] => false,
        [flag] if flag == "--full" => true,
        other => bail!("`ci` takes --full or nothing, found {other:?}"),
    };
    let start = Instant::now();
    timed("layers", || layers::run(root))?;
    timed("tidy", || tidy::run(root))?;
    let slow = if full { FULL_STEPS } else { &[] };
    for step in STEPS.iter().chain(slow) {
        timed(step.name, || run_step(root, step))?;
    }
    if full {
        timed("examples", || examples::run(root))?;
    }
    println!(
        "ci: all checks passed in {:.0} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn timed(name: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("ci: {name}");
    let start = Instant::now();
    check().map_err(|error| error.context(format!("check `{name}` failed")))?;
    println!(
        "ci: {name} passed in {:.0} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn run_step(root: &Path, step: &Step) -> Result<()> {
    let mut command: Command = cargo();
    command.args(step.args).current_dir(root);
    command.envs(step.env.iter().copied());
    let status = command.status()?;
    if !status.success() {
        bail!("`cargo {}` ended with {status}", step.args.join(" "));
    }
    Ok(())
}
