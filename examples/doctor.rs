//! Prints what matters before a run: CPU and the kernels that it selects, threads, memory, features built in, CUDA.
//!
//!     cargo xtask doctor
//!
//! runs this with the toolchain's versions before it; `Environment` is the same as data.

use tallow::tensor::environment::Environment;

fn main() {
    let features = [
        ("download", cfg!(feature = "download")),
        ("parquet", cfg!(feature = "parquet")),
    ];
    let built = features.iter().filter(|(_, built)| *built);
    let built: Vec<&str> = built.map(|(name, _)| *name).collect();
    let left: Vec<&str> = features
        .iter()
        .filter(|(_, built)| !built)
        .map(|(name, _)| *name)
        .collect();
    let list = |names: &[&str]| match names {
        [] => "none".to_string(),
        names => names.join(", "),
    };
    println!("{}", Environment::detect());
    println!("built in   {} (left out: {})", list(&built), list(&left));
}
