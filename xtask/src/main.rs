//! Developer commands of the workspace: `cargo xtask <command>`.
//!
//! Each command is one module with a `run` function; this file only parses the command line.

use std::process::ExitCode;

use xtask::{bench, ci, examples, layers, tidy, workspace_root};

const USAGE: &str = "\
Usage: cargo xtask <command>

Commands:
  ci [--full]     everything a change must pass; --full adds the slow checks
  bench [options] benches as JSON lines; `cargo xtask bench --help` for the options
  examples        run every example, optimised, to its end and within its time
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
