//! What a model was built with, and the machine it runs on: facts that are looked up, not asked for.

use std::collections::BTreeMap;
use std::process::Command;

use serde::{Deserialize, Serialize};
use tallow_tensor::environment::{CANDLE, Environment};

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
    /// The one that they chose.
    pub simd: String,
    /// Threads that kernels run on.
    pub threads: usize,
    /// Memory in bytes; 0 where the system doesn't tell it.
    pub memory: u64,
    /// Operating system and architecture.
    pub os: String,
}

impl Machine {
    /// This machine: the facts of [`Environment`], which `cargo xtask doctor` prints.
    pub fn detect() -> Self {
        let environment = Environment::detect();
        Self {
            device: "cpu".into(),
            cpu: environment
                .cpu
                .unwrap_or_else(|| std::env::consts::ARCH.into()),
            features: environment.cpu_features,
            simd: environment.simd,
            threads: environment.threads,
            memory: environment.memory.unwrap_or_default(),
            os: environment.platform,
        }
    }
}
