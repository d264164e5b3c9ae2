//! What the developer commands do, as a library so that tests can call it.

use std::path::{Path, PathBuf};

pub mod bench;
pub mod ci;
pub mod doctor;
pub mod examples;
pub mod layers;
pub mod names;
pub mod profile;
pub mod tidy;

/// The folder that holds the workspace's `Cargo.toml`.
pub fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> std::process::Command {
    std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}
