//! What a model was built with, and the machine it runs on: facts that are looked up, not asked for.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The version of candle that this crate is made for.
const CANDLE: &str = "0.11.1";

/// What a model was built with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// The compiler.
    pub rustc: String,
    /// The target it compiled for.
    pub target: String,
    /// Crates that matter, with their versions.
    pub crates: BTreeMap<String, String>,
    /// The commit of the source that trained it; with `-dirty` if files were changed.
    pub git_commit: String,
}

impl Build {
    /// The compiler and versions of this build, and the commit of the git checkout that the process runs in, empty if
    /// it runs in none.
    pub fn detect() -> Self {
        let versions = [
            ("candle-core", CANDLE),
            ("tallow-export", env!("CARGO_PKG_VERSION")),
        ];
        let versions = versions.map(|(name, version)| (name.into(), version.into()));
        Self {
            rustc: env!("TALLOW_RUSTC").into(),
            target: env!("TALLOW_TARGET").into(),
            crates: BTreeMap::from(versions),
            git_commit: git_commit().unwrap_or_default(),
        }
    }
}

fn git_commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_string())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() {
        commit
    } else {
        format!("{commit}-dirty")
    })
}

/// The machine that a model runs on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// `cpu`.
    pub device: String,
    /// The processor's name.
    pub cpu: String,
    /// Its instruction sets that kernels choose by.
    pub features: Vec<String>,
    /// Threads that kernels run on.
    pub threads: usize,
    /// Operating system and architecture.
    pub os: String,
}

impl Machine {
    /// This machine.
    pub fn detect() -> Self {
        let os = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        Self {
            device: "cpu".into(),
            cpu: cpu_name().unwrap_or_else(|| std::env::consts::ARCH.into()),
            features: features(),
            threads: candle_core::utils::get_num_threads(),
            os,
        }
    }
}

/// What Linux calls the processor.
fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string(Path::new("/proc/cpuinfo")).ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<String> {
    let mut features = Vec::new();
    let mut note = |name: &str, there: bool| {
        if there {
            features.push(name.to_string());
        }
    };
    note("avx2", is_x86_feature_detected!("avx2"));
    note("fma", is_x86_feature_detected!("fma"));
    note("avx512f", is_x86_feature_detected!("avx512f"));
    note("avx512bf16", is_x86_feature_detected!("avx512bf16"));
    note("avx512vnni", is_x86_feature_detected!("avx512vnni"));
    features
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<String> {
    Vec::new()
}
