//! What must hold for any bytes whatever, for each reader of files. A panic is a finding.
//!
//! Shared by the fuzz targets and by `crates/tallow/tests/fuzz.rs`, which runs them over the seeds and their mutations.

#![allow(unreachable_pub, reason = "the fuzz targets are crates of their own")]

use std::path::{Path, PathBuf};

use tallow::data::decode::{self, Channels, DecodeOptions, Limits};
use tallow::data::{Error, ImageDataset, Loader, LoaderConfig, TarShards, datasets};
use tallow::tensor::params::TorchFile;

/// A picture within the limits, or an error of decoding.
pub fn decode(bytes: &[u8]) {
    let options = DecodeOptions {
        channels: Channels::AsIs,
        exif_orientation: true,
        limits: Limits {
            max_pixels: 1 << 20,
        },
        ..DecodeOptions::default()
    };
    match decode::decode(bytes, &options) {
        Ok(image) => {
            let pixels = image.height() * image.width();
            assert!((1..=1 << 20).contains(&pixels));
            assert_eq!(image.values().len(), pixels * image.channels());
        }
        Err(Error::Decode(_)) => {}
        Err(other) => panic!("an error that is not one of decoding: {other:?}"),
    }
}

/// A data set that hangs together, or an error that names the file, whether the bytes are those of images or of labels.
pub fn idx(bytes: &[u8]) {
    let folder = Folder::new();
    let any = folder.write("any", bytes);
    let mut labels = vec![0, 0, 8, 1, 0, 0, 0, 3];
    labels.extend([0, 1, 2]);
    let mut images = vec![0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2];
    images.extend([0; 6]);
    let (labels, images) = (
        folder.write("labels", &labels),
        folder.write("images", &images),
    );
    let names = ["a", "b", "c"];
    sound(datasets::idx::load(&any, &labels, names));
    sound(datasets::idx::load(&images, &any, names));
}

fn sound(result: tallow::data::Result<ImageDataset>) {
    match result {
        Ok(data) => {
            let size: usize = data.image_shape().iter().product();
            assert_eq!(data.pixels().len(), data.len() * size);
            assert!(data.labels().iter().all(|&label| label < 3));
        }
        Err(Error::File { path, .. }) => assert!(path.is_absolute()),
        Err(other) => panic!("an error that names no file: {other:?}"),
    }
}

/// Every sample of a shard is a picture with a label, or an error; the reader comes to an end.
pub fn tar(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.write("shard.tar", bytes);
    let Ok(shards) = TarShards::open([path]) else {
        return;
    };
    let config = LoaderConfig::eval(4).with_workers(0);
    let sizes =
        |(image, label): (tallow::data::Image, u32), _: &mut _| Ok((image.values().len(), label));
    let Ok(loader) = Loader::collated(shards, sizes, Ok, config) else {
        return;
    };
    let Ok(batches) = loader.batches(0) else {
        return;
    };
    // A sample takes up at least one block of 512 bytes.
    let most = bytes.len() / 512 + 2;
    assert!(
        batches.take(most + 1).count() <= most,
        "a reader that goes on for ever"
    );
}

/// Tensors of the shapes that the file announces, or an error.
pub fn pth(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.write("state.pth", bytes);
    let Ok(file) = TorchFile::open(path) else {
        return;
    };
    for name in file.names() {
        if let Ok(tensor) = file.read(name) {
            assert_eq!(Some(tensor.dims()), file.shape(name));
        }
    }
}

/// A folder for one input.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = Path::new(self.0.path()).join(name);
        std::fs::write(&path, bytes).expect("a temporary file");
        path
    }
}
