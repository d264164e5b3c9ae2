//! Developer commands of the workspace: `cargo xtask <command>`.
//!
//! Each command is one module with a `run` function; this file only parses the command line.

use std::process::ExitCode;

use xtask::{bench, ci, doctor, examples, layers, profile, tidy, workspace_root};

const USAGE: &str = "\
Usage: cargo xtask <command>

Commands:
  ci [--full]     everything a change must pass; --full adds the slow checks
  bench [options] benches as JSON lines; `cargo xtask bench --help` for the options
  examples        run every example, optimised, to its end and within its time
  profile EXAMPLE where the time of an example goes: report, trace and flame graph in runs/profile/EXAMPLE
  doctor          what matters before a run: toolchain, CPU, kernels, threads, features, CUDA, memory
  layers          compare the crates' dependencies with the table in ARCHITECTURE.md
  tidy            house rules that no compiler checks
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("", &[][..]),
    };
    let root = workspace_root();
    let outcome = match command {
        "ci" => ci::run(&root, rest),
        "bench" => bench::run(&root, rest),
        "examples" => examples::run(&root),
        "profile" => profile::run(&root, rest),
        "doctor" => doctor::run(&root, rest),
        "layers" => layers::run(&root),
        "tidy" => tidy::run(&root),
        "" | "help" | "--help" | "-h" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        other => Err(anyhow::anyhow!("unknown command `{other}`\n\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
