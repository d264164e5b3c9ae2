//! `cargo xtask examples`: every example, optimised, to its end and within its time.
//!
//! Each runs without arguments in an empty folder of its own under `target/example-runs`, where its output is kept too. Examples
//! that need a feature or arguments are left out.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo;

/// What an example may take on two cores.
const SECONDS: u64 = 60;
/// The name of a variable that allows more, for slow or busy machines.
const ALLOWANCE: &str = "TALLOW_EXAMPLE_SECONDS";

/// Tools that do nothing without being told what with.
const NEED_ARGUMENTS: &[&str] = &["verify_delivery"];

/// Builds and runs all examples; the error names each that failed.
pub fn run(root: &Path) -> Result<()> {
    let limit = match std::env::var(ALLOWANCE) {
        Ok(seconds) => seconds
            .parse()
            .with_context(|| format!("{ALLOWANCE} needs a number of seconds"))?,
        Err(_) => SECONDS,
    };
    let metadata = metadata(root)?;
    let target = metadata["target_directory"].as_str().unwrap_or("target");
    let target = root.join(target);
    let build = ["build", "--release", "-p", "tallow", "--examples"];
    let status = cargo().args(build).current_dir(root).status()?;
    if !status.success() {
        bail!("`cargo {}` ended with {status}", build.join(" "));
    }
    let mut faults = Vec::new();
    for (name, features) in names(&metadata) {
        if !features.is_empty() {
            println!("  {name:24} left out: needs {}", features.join(", "));
            continue;
        }
        if NEED_ARGUMENTS.contains(&name.as_str()) {
            println!("  {name:24} left out: needs arguments");
            continue;
        }
        let folder = target.join("example-runs").join(&name);
        let start = Instant::now();
        let outcome = run_one(&target, &name, &folder, Duration::from_secs(limit));
        match outcome {
            Ok(()) => println!("  {name:24} {:5.1} s", start.elapsed().as_secs_f64()),
            Err(error) => {
                println!("  {name:24} failed: {error:#}");
                faults.push(format!("{name}: {error:#}\n{}", end_of_output(&folder)));
            }
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{} examples failed:\n{}", faults.len(), faults.join("\n\n"))
}

fn metadata(root: &Path) -> Result<Value> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The facade's examples, each with the features that it needs.
pub fn names(metadata: &Value) -> Vec<(String, Vec<String>)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let packages = list(&metadata["packages"]).into_iter();
    let facade = packages.filter(|package| package["name"] == "tallow");
    let targets = facade.flat_map(|package| list(&package["targets"]));
    let examples = targets.filter(|target| list(&target["kind"]).contains(&"example".into()));
    let named = examples.map(|target| {
        let features = list(&target["required-features"]);
        (text(&target["name"]), features.iter().map(text).collect())
    });
    named.collect()
}

fn run_one(target: &Path, name: &str, folder: &Path, limit: Duration) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let program = target.join("release/examples").join(name);
    let output = File::create(output_in(folder))?;
    let mut process = Command::new(&program)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(output.try_clone()?)
        .stdout(output)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let start = Instant::now();
    loop {
        if let Some(status) = process.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("it ended with {status}");
        }
        if start.elapsed() > limit {
            process.kill()?;
            process.wait()?;
            bail!(
                "it took more than {} s; make it do less, or set {ALLOWANCE} on a slow machine",
                limit.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn output_in(folder: &Path) -> PathBuf {
    folder.join("output.txt")
}

/// The last lines that an example printed.
fn end_of_output(folder: &Path) -> String {
    let text = fs::read(output_in(folder)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
