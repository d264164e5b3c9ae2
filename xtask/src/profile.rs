//! `cargo xtask profile EXAMPLE`: runs an example as it is, profiled, and leaves the reports in `runs/profile/EXAMPLE`.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo;

const USAGE: &str = "\
Usage: cargo xtask profile EXAMPLE [-- arguments of the example]
";

/// What an example's `main` must begin with.
const GUARD: &str = "profile::from_env()";

/// Runs the example with `TALLOW_PROFILE` set.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    let (name, rest) = match args {
        [name, rest @ ..] if !name.starts_with('-') => (name, rest),
        _ => bail!("{USAGE}"),
    };
    let rest = match rest {
        [] => rest,
        [dashes, rest @ ..] if dashes == "--" => rest,
        _ => bail!("{USAGE}"),
    };
    let source = root.join("examples").join(format!("{name}.rs"));
    let text = std::fs::read_to_string(&source)
        .with_context(|| format!("there is no example `{name}`: reading {}", source.display()))?;
    if !text.contains(GUARD) {
        bail!(
            "example `{name}` doesn't look at TALLOW_PROFILE; begin its `main` with `let _profile = tallow::{GUARD}?;`"
        );
    }
    let folder = root.join("runs").join("profile").join(name);
    let mut command = cargo();
    command.args(["run", "--release", "--package", "tallow", "--example", name]);
    command.arg("--").args(rest).current_dir(root);
    let status = command.env("TALLOW_PROFILE", &folder).status()?;
    if !status.success() {
        bail!("example `{name}` ended with {status}");
    }
    Ok(())
}
