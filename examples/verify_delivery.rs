//! Verifies a delivery on this machine; its exit status says whether to deploy.
//!
//!     cargo run --release --example verify_delivery -- DIR

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        eprintln!(
            "usage: verify_delivery DIR\n\n  DIR   a folder with manifest.json and the files that it lists"
        );
        return ExitCode::from(2);
    };
    let report = tallow::export::verify(folder);
    println!("{report}");
    match report.deploy() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
