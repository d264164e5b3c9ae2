//! `cargo xtask tidy`: house rules that no compiler checks, over the files that git tracks.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::names;

/// A text file of ours, longer than this, holds more than one idea.
const MAX_LINES: usize = 700;
/// The embedded data set is the largest thing the repository may hold.
const MAX_BYTES: u64 = 4 << 20;

/// Where `unsafe` may stand: kernels, SIMD, and the calls into the system's allocator.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/tallow-kernels/src/",
    "crates/tallow-tensor/src/memory.rs",
    "crates/tallow-compile/tests/allocation.rs",
    "crates/tallow-export/src/mapping.rs",
    "benches/",
];

/// Programs that must not compile: their name says why, and the compiler's words are stored beside them, with line numbers.
const NO_HEAD: &str = "crates/tallow-data/tests/transforms/order/";

/// File names that say nothing of what is in the file.
const EMPTY_NAMES: &[&str] = &[
    "utils.rs",
    "util.rs",
    "helpers.rs",
    "helper.rs",
    "common.rs",
    "misc.rs",
    "base.rs",
];

/// Checks every tracked file; the error lists each fault with its file and line.
pub fn run(root: &Path) -> Result<()> {
    let mut faults = Vec::new();
    for path in tracked_files(root)? {
        let full = root.join(&path);
        let Ok(metadata) = full.symlink_metadata() else {
            continue;
        };
        if metadata.len() > MAX_BYTES {
            faults.push(format!(
                "{path}: {} bytes, at most {MAX_BYTES} are allowed",
                metadata.len()
            ));
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| format!("reading {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            faults.extend(check_text(&path, &text));
        }
    }
    faults.extend(names::check(root)?);
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{} faults:\n  {}", faults.len(), faults.join("\n  "))
}

fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("running git ls-files")?;
    if !output.status.success() {
        bail!(
            "git ls-files failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let names = String::from_utf8(output.stdout)?;
    Ok(names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_string)
        .collect())
}

/// The faults of one file. Binary and generated files are the caller's to leave out.
pub fn check_text(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let source = [".rs", ".toml", ".md", ".py", ".sh"]
        .iter()
        .any(|ending| path.ends_with(ending));
    if !source {
        return faults;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        faults.push(format!("{path}: no newline at the end of the file"));
    }
    for (index, line) in text.lines().enumerate() {
        let rust = path.ends_with(".rs");
        faults.extend(
            check_line(path, rust, line).map(|fault| format!("{path}:{}: {fault}", index + 1)),
        );
    }
    if path.ends_with(".rs") {
        faults.extend(check_rust_file(path, text));
    }
    faults
}

fn check_line(path: &str, rust: bool, line: &str) -> Option<&'static str> {
    // The words are put together here so that this file passes its own rules.
    let marker = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
    ];
    let machine = [
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
    ];
    let glob = [
        concat!("use candle_core::", "*;"),
        concat!("use candle_nn::", "*;"),
    ];
    let allowed = UNSAFE_ALLOWED.iter().any(|prefix| path.starts_with(prefix));
    let code = line.split("//").next().unwrap_or_default();
    let forbidden = [
        concat!("un", "safe {"),
        concat!("un", "safe fn"),
        concat!("un", "safe impl"),
    ]
    .iter()
    .any(|word| code.contains(word));
    if line.ends_with(' ') && !path.ends_with(".md") {
        Some("trailing white space")
    } else if rust && line.contains('\t') {
        Some("a tab; indent with spaces")
    } else if rust && marker.iter().any(|word| line.contains(word)) {
        Some("a marker for unfinished work; finish it or file an issue")
    } else if machine.iter().any(|word| line.contains(word)) {
        Some("a path of one machine")
    } else if rust && !allowed && forbidden {
        Some("unsafe outside the kernels; see CONTRIBUTING.md")
    } else if rust && glob.iter().any(|word| line.contains(word)) {
        Some("a glob import; name what is used")
    } else {
        None
    }
}

fn check_rust_file(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let needs_head = !path.starts_with(NO_HEAD);
    if needs_head && !text.starts_with("//!") && !text.starts_with("#![doc") {
        faults.push(format!(
            "{path}: no `//!` head that says what the file is for"
        ));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        faults.push(format!(
            "{path}: {lines} lines, at most {MAX_LINES}; look for the second idea in it"
        ));
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    if EMPTY_NAMES.contains(&name) {
        faults.push(format!(
            "{path}: a file name that says nothing; name the concept"
        ));
    }
    faults
}
