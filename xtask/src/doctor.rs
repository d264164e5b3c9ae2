//! `cargo xtask doctor`: what matters before a run. The toolchain is asked here; the rest is what a build of the product says
//! about itself and its machine, by `examples/doctor.rs`.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::cargo;

/// Prints it all. Arguments go to cargo, such as `--features parquet`.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    println!("toolchain  {}, {}", version("rustc"), version("cargo"));
    let mut command = cargo();
    command.args(["run", "--quiet", "--release", "--package", "tallow"]);
    command.args(["--example", "doctor"]).args(args);
    let status = command.current_dir(root).status()?;
    if !status.success() {
        bail!("the doctor's example ended with {status}; does `cargo build --release` work?");
    }
    Ok(())
}

fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").output();
    match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_string(),
        Err(error) => format!("{program}: {error}"),
    }
}
