//! Notes which compiler builds this crate, for the manifest of a delivery.

use std::process::Command;

fn main() {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler).arg("--version").output();
    let version = output
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=TALLOW_RUSTC={}", version.trim());
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo:rustc-env=TALLOW_TARGET={target}");
    println!("cargo:rerun-if-changed=build.rs");
}
