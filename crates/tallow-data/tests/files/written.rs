//! Writes small data sets in the formats that the crate reads.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

/// An idx file of unsigned bytes.
pub(crate) fn idx(dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dims.len() as u8];
    bytes.extend(dims.iter().flat_map(|dim| dim.to_be_bytes()));
    bytes.extend_from_slice(data);
    bytes
}

/// Pixels that differ from one to the next.
pub(crate) fn pixels(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * 7 + i / 251) as u8).collect()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// The contents of MNIST's four files, with 4 training and 3 test images.
pub(crate) fn mnist_files() -> [(&'static str, Vec<u8>); 4] {
    [
        (
            "train-images-idx3-ubyte",
            idx(&[4, 28, 28], &pixels(4 * 784)),
        ),
        ("train-labels-idx1-ubyte", idx(&[4], &[3, 0, 9, 3])),
        (
            "t10k-images-idx3-ubyte",
            idx(&[3, 28, 28], &pixels(3 * 784)),
        ),
        ("t10k-labels-idx1-ubyte", idx(&[3], &[1, 2, 1])),
    ]
}

/// Records of CIFAR: for each list of label bytes, these and an image.
pub(crate) fn cifar(records: &[&[u8]]) -> Vec<u8> {
    let images = pixels(records.len() * 3072);
    let records = records.iter().zip(images.chunks(3072));
    records
        .flat_map(|(labels, image)| [labels, image].concat())
        .collect()
}

/// The contents of CIFAR-10's six files, with 2 images each.
pub(crate) fn cifar10_files() -> Vec<(String, Vec<u8>)> {
    let train = (1..=5).map(|i| (format!("data_batch_{i}.bin"), cifar(&[&[i], &[9]])));
    train
        .chain([("test_batch.bin".to_owned(), cifar(&[&[0], &[7]]))])
        .collect()
}
