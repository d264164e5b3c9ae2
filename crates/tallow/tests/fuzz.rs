//! The fuzz targets of `fuzz/`, over their seeds and mutations of them: the same ones in every run.
//!
//! `TALLOW_MUTATIONS` sets how many mutations a target sees; 200 without it.

#[path = "../../../fuzz/checks.rs"]
mod checks;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tallow::tensor::rng::{self, Purpose, Stream};

const SEEDS: &str = "fuzz/seeds";
const PICTURES: &str = "crates/tallow-data/tests/golden/decode";
const TORCH: &str = "crates/tallow-tensor/tests/golden/torch";

fn seeds(folders: &[String]) -> Vec<(PathBuf, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = folders.iter().map(|folder| root.join(folder));
    let files = folders.filter(|folder| folder.is_dir()).flat_map(|folder| {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path())
    });
    let mut seeds: Vec<_> = files
        .filter(|path| {
            // What is expected of the seeds lies beside some of them.
            let extension = path.extension().and_then(|extension| extension.to_str());
            !matches!(extension, Some("rgb" | "json" | "py"))
        })
        .map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect();
    seeds.sort();
    seeds
}

/// Changes, removes or repeats a few bytes.
fn mutate(bytes: &mut Vec<u8>, draw: &mut Stream) {
    for _ in 0..1 + draw.below(6) {
        let place = draw.below(bytes.len().max(1) as u64) as usize;
        let Some(byte) = bytes.get_mut(place) else {
            return;
        };
        match draw.below(8) {
            0..4 => *byte = draw.next_u32() as u8,
            4 => *byte ^= 1 << draw.below(8),
            5 => *byte = [0, 0xff, 0x7f, 0x80][draw.below(4) as usize],
            6 => {
                let end = (place + draw.below(16) as usize).min(bytes.len());
                let piece = bytes[place..end].to_vec();
                bytes.splice(place..place, piece);
            }
            _ => bytes.truncate(place),
        }
    }
}

/// Runs a check over the seeds in these folders and their mutations; what fails is named, so that it can be kept as a seed.
fn run(target: u64, folders: &[String], least: usize, check: fn(&[u8])) {
    let mutations: usize = std::env::var("TALLOW_MUTATIONS").map_or(200, |text| {
        text.parse().expect("TALLOW_MUTATIONS is a number")
    });
    let seeds = seeds(folders);
    assert!(seeds.len() >= least, "{} seeds in {folders:?}", seeds.len());
    for (path, seed) in &seeds {
        let run = catch_unwind(AssertUnwindSafe(|| check(seed)));
        assert!(run.is_ok(), "{}", path.display());
    }
    for number in 0..mutations {
        let (path, seed) = &seeds[number % seeds.len()];
        let key = rng::key(1, Purpose::Synthetic, target, number as u64);
        let mut bytes = seed.clone();
        mutate(&mut bytes, &mut Stream::new(key));
        let run = catch_unwind(AssertUnwindSafe(|| check(&bytes)));
        assert!(run.is_ok(), "{}, mutation {number}", path.display());
    }
}

#[test]
fn decode() {
    let folders = [format!("{SEEDS}/decode"), PICTURES.into()];
    run(0, &folders, 20, checks::decode);
}

#[test]
fn idx() {
    run(1, &[format!("{SEEDS}/idx")], 5, checks::idx);
}

#[test]
fn tar() {
    run(2, &[format!("{SEEDS}/tar")], 5, checks::tar);
}

#[test]
fn pth() {
    run(3, &[format!("{SEEDS}/pth"), TORCH.into()], 5, checks::pth);
}
