//! Chapter 7: data that comes as a stream. Pipes put together from small steps, a stream of one's own behind a loader, and
//! images in tar shards in WebDataset's form, mixed, shared between two readers, and resumed in the middle.
//!
//!     cargo run --release --example ch07_datapipes
//!
//! Takes a second; the shards are written to a temporary folder first.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use tallow::data::{Image, Loader, LoaderConfig, Shard, TarShards, pipe, source};

const SHARDS: u32 = 4;
const SAMPLES_A_SHARD: u32 = 50;

fn main() -> Result<()> {
    let _profile = tallow::profile::from_env()?;
    pipes()?;
    streams()?;
    let folder = tempfile::tempdir()?;
    let paths = write_shards(folder.path())?;
    shards(&paths)
}

/// Steps one after the other, read from the end; nothing is done before it is asked for.
fn pipes() -> Result<()> {
    let lines = ["3 cats", "five dogs", "2 birds", "8 fish", "1 horse"];
    let batches = pipe::from_iter(lines)
        .try_map(|line| {
            let (count, animal) = line.split_once(' ').unwrap_or((line, ""));
            let count: u32 = count.parse().map_err(tallow::data::Error::custom)?;
            Ok((count, animal))
        })
        .filter(|(count, _)| *count > 1)
        .shuffle(3, 42)
        .batch(2, false)?
        .prefetch(1);
    for batch in batches {
        match batch {
            Ok(batch) => println!("pipe: {batch:?}"),
            // An error is an item like any other; whether it ends the run is the reader's choice.
            Err(error) => println!("pipe: error: {error}"),
        }
    }
    Ok(())
}

/// Any iterator is a source: it gives something cheap, and the loader's workers make samples of it.
fn streams() -> Result<()> {
    let squares = source::stream(|pass| (0..1000u64).map(move |number| Ok(number + pass.epoch)));
    let squares = squares
        .then(|number| Ok(number * number))
        .shuffle_buffer(100);
    let config = |workers| LoaderConfig::train(64).with_workers(workers);
    let sums = |workers| -> Result<Vec<u64>> {
        let change = |square, _: &mut _| Ok(square);
        let collate = |squares: Vec<u64>| Ok(squares.iter().sum());
        let loader = Loader::collated(squares.clone(), change, collate, config(workers))?;
        Ok(loader.batches(3)?.collect::<tallow::data::Result<_>>()?)
    };
    let one = sums(1)?;
    ensure!(one == sums(0)? && one == sums(2)?);
    println!(
        "stream: {} batches, the same for 0, 1 and 2 workers",
        one.len()
    );
    Ok(())
}

/// Tar files of samples: `0017.bmp` is an image, `0017.cls` its class.
fn write_shards(folder: &Path) -> Result<Vec<PathBuf>> {
    let write = |shard: u32| -> Result<PathBuf> {
        let path = folder.join(format!("train-{shard:04}.tar"));
        let mut tar = tar::Builder::new(File::create(&path)?);
        for number in shard * SAMPLES_A_SHARD..(shard + 1) * SAMPLES_A_SHARD {
            let class = number % 10;
            append(
                &mut tar,
                &format!("{number:04}.bmp"),
                &bmp(class as u8 * 25),
            )?;
            append(
                &mut tar,
                &format!("{number:04}.cls"),
                class.to_string().as_bytes(),
            )?;
        }
        tar.into_inner()?;
        Ok(path)
    };
    (0..SHARDS).map(write).collect()
}

fn append(tar: &mut tar::Builder<File>, name: &str, bytes: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    Ok(tar.append_data(&mut header, name, bytes)?)
}

/// A BMP file of 8 x 8 pixels of one grey.
fn bmp(grey: u8) -> Vec<u8> {
    const PIXELS: u32 = 8 * 8 * 3;
    let header: [u32; 12] = [
        54 + PIXELS,
        0,
        54,
        40,
        8,
        8,
        1 | 24 << 16,
        0,
        PIXELS,
        2835,
        2835,
        0,
    ];
    let mut file = b"BM".to_vec();
    file.extend(header.iter().flat_map(|field| field.to_le_bytes()));
    file.extend([0; 4]);
    file.extend([grey; PIXELS as usize]);
    file
}

/// Shards and samples in another order in each epoch, shared between readers without a sample seen twice.
fn shards(paths: &[PathBuf]) -> Result<()> {
    let source = TarShards::open(paths)?.shuffle_buffer(64);
    let open = |rank, workers| {
        let config = LoaderConfig {
            shard: Shard { rank, of: 2 },
            ..LoaderConfig::train(10).with_workers(workers)
        };
        let change = |(image, class): (Image, u32), _: &mut _| Ok((image.values()[0], class));
        Loader::collated(source.clone(), change, Ok, config)
    };

    let mut classes = [0; 10];
    for rank in 0..2 {
        let loader = open(rank, 2)?;
        for batch in loader.batches(0)? {
            for (grey, class) in batch? {
                ensure!(
                    u32::from(grey) == class * 25,
                    "an image got another's class"
                );
                classes[class as usize] += 1;
            }
        }
        println!(
            "tar: reader {rank} of 2 saw {} samples",
            loader.stats().samples
        );
    }
    ensure!(
        classes == [SHARDS * SAMPLES_A_SHARD / 10; 10],
        "{classes:?}"
    );

    let loader = open(1, 1)?;
    let whole: Vec<_> = loader.batches(1)?.collect::<tallow::data::Result<_>>()?;
    let mut batches = loader.batches(1)?;
    for batch in batches.by_ref().take(4) {
        batch?;
    }
    let rest: Vec<_> = open(1, 2)?
        .resume(&batches.state())?
        .collect::<tallow::data::Result<_>>()?;
    ensure!(rest == whole[4..]);
    println!(
        "tar: resumed after batch 4, with another number of workers: the same {} batches",
        rest.len()
    );
    Ok(())
}
