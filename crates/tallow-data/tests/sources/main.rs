//! Sources of samples: what they find, in which order, and what they say about files that are not as they should be.

mod folder;
#[cfg(feature = "parquet")]
mod parquet;
mod tar;

use std::io::Write;

use flate2::{Compression, Crc, write::ZlibEncoder};
use tallow_data::{Image, Loader, LoaderConfig, Result, Source};

/// A PNG file of one grey pixel.
fn png(grey: u8) -> Vec<u8> {
    fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let mut crc = Crc::new();
        crc.update(kind);
        crc.update(data);
        let len = (data.len() as u32).to_be_bytes();
        [&len[..], kind, data, &crc.sum().to_be_bytes()].concat()
    }
    let header = [0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0];
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&[0, grey]).unwrap();
    [
        b"\x89PNG\r\n\x1a\n".to_vec(),
        chunk(b"IHDR", &header),
        chunk(b"IDAT", &packed.finish().unwrap()),
        chunk(b"IEND", &[]),
    ]
    .concat()
}

/// The grey of the one pixel, which has three channels.
fn grey(image: &Image) -> u8 {
    assert_eq!((image.height(), image.width(), image.channels()), (1, 1, 3));
    image.values()[0]
}

/// (grey, label) of every sample of an epoch, errors as they are.
fn epoch<S: Source<Sample = (Image, u32)>>(
    source: S,
    epoch: u64,
    config: LoaderConfig,
) -> Vec<Result<Vec<(u8, u32)>>> {
    let change = |(image, label): (Image, u32), _: &mut _| Ok((grey(&image), label));
    let loader = Loader::collated(source, change, Ok, config).unwrap();
    loader.batches(epoch).unwrap().collect()
}

/// All samples of an epoch without an error.
fn samples<S: Source<Sample = (Image, u32)>>(
    source: S,
    number: u64,
    config: LoaderConfig,
) -> Vec<(u8, u32)> {
    let batches: Result<Vec<_>> = epoch(source, number, config).into_iter().collect();
    batches.unwrap().concat()
}
