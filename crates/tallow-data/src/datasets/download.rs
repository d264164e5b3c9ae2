//! Fetching a data set from the Hugging Face hub, with candle-datasets' code (feature `download`).
//!
//! Files are kept in the hub's cache (`~/.cache/huggingface`, or `HF_HOME`), so that a second call needs no network.
//! CIFAR-100 is not among the data sets that candle-datasets knows.

use std::panic::catch_unwind;

use candle_core::{DType, Tensor};
use candle_datasets::vision;

use super::{cifar10, fashion_mnist, mnist};
use crate::{Error, ImageDataset, Result};

/// The data sets that [`download`] can fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Name {
    /// [`mnist`]
    Mnist,
    /// [`fashion_mnist`]
    FashionMnist,
    /// [`cifar10`]
    Cifar10,
}

/// Fetches `(train, test)` from the Hugging Face hub, or from its cache.
///
/// # Errors
///
/// [`Error::Download`] without a network, or if what comes is not the data set.
pub fn download(name: Name) -> Result<(ImageDataset, ImageDataset)> {
    let hub = hub(name);
    // candle-datasets unwraps what it decodes, so a damaged download would be a panic.
    let loaded = catch_unwind(hub.load).map_err(|_| hub.error("damaged files came"))?;
    let loaded = loaded.map_err(|error| hub.error(error))?;
    let part = |images: &Tensor, labels: &Tensor| {
        convert(images, labels, &hub).map_err(|error| hub.error(error))
    };
    Ok((
        part(&loaded.train_images, &loaded.train_labels)?,
        part(&loaded.test_images, &loaded.test_labels)?,
    ))
}

/// What there is to know about a data set on the hub.
struct Hub {
    what: &'static str,
    load: fn() -> candle_core::Result<vision::Dataset>,
    /// `[C, H, W]`.
    shape: [usize; 3],
    /// candle-datasets 0.11.1 permutes CIFAR's `[N, H, W, C]` to `[N, C, W, H]`: every image lies on its side.
    transposed: bool,
    class_names: [&'static str; 10],
    by_hand: &'static str,
}

fn hub(name: Name) -> Hub {
    match name {
        Name::Mnist => Hub {
            what: "MNIST",
            load: vision::mnist::load,
            shape: [1, 28, 28],
            transposed: false,
            class_names: mnist::CLASS_NAMES,
            by_hand: "mnist::load",
        },
        Name::FashionMnist => Hub {
            what: "Fashion-MNIST",
            load: vision::fashion_mnist::load,
            shape: [1, 28, 28],
            transposed: false,
            class_names: fashion_mnist::CLASS_NAMES,
            by_hand: "fashion_mnist::load",
        },
        Name::Cifar10 => Hub {
            what: "CIFAR-10",
            load: vision::cifar::load,
            shape: [3, 32, 32],
            transposed: true,
            class_names: cifar10::CLASS_NAMES,
            by_hand: "cifar10::load",
        },
    }
}

impl Hub {
    fn error(&self, message: impl ToString) -> Error {
        Error::Download {
            what: self.what,
            message: message.to_string(),
            remedy: format!(
                "check that https://huggingface.co can be reached, or put the files in a folder and read them with \
                 datasets::{}",
                self.by_hand
            ),
        }
    }
}

/// From candle-datasets' tensors, f32 in 0..1, back to the bytes that they were.
fn convert(images: &Tensor, labels: &Tensor, hub: &Hub) -> Result<ImageDataset> {
    let [channels, height, width] = hub.shape;
    let images = images.reshape(((), channels, height, width))?;
    let images = if hub.transposed {
        images.permute((0, 1, 3, 2))?
    } else {
        images
    };
    let values = images.flatten_all()?.to_vec1::<f32>()?;
    let pixels = values
        .into_iter()
        .map(|value| (value * 255.).round() as u8)
        .collect();
    let labels = labels.to_dtype(DType::U32)?.to_vec1()?;
    ImageDataset::new(pixels, hub.shape, labels, hub.class_names)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    /// What candle-datasets makes of images whose bytes are `pixels`, `[N, H, W, C]`.
    fn as_loaded(pixels: &[u8], shape: (usize, usize, usize, usize)) -> Tensor {
        let images = Tensor::from_slice(pixels, shape, &Device::Cpu).unwrap();
        let images = images
            .to_dtype(DType::F32)
            .unwrap()
            .permute((0, 3, 2, 1))
            .unwrap();
        (images / 255.).unwrap()
    }

    #[test]
    fn cifar_images_are_put_upright_again_byte_for_byte() {
        let pixels: Vec<u8> = (0..2 * 32 * 32 * 3).map(|i| (i * 7 % 256) as u8).collect();
        let images = as_loaded(&pixels, (2, 32, 32, 3));
        let labels = Tensor::new(&[3u8, 9], &Device::Cpu).unwrap();
        let data = convert(&images, &labels, &hub(Name::Cifar10)).unwrap();
        assert_eq!(data.labels(), [3, 9]);
        let at = |n: usize, c: usize, y: usize, x: usize| pixels[((n * 32 + y) * 32 + x) * 3 + c];
        let expected: Vec<u8> = (0..2 * 3 * 32 * 32)
            .map(|i| at(i / 3072, i / 1024 % 3, i / 32 % 32, i % 32))
            .collect();
        assert_eq!(data.pixels(), expected);
    }

    #[test]
    fn grey_images_come_as_rows_of_pixels() {
        let pixels: Vec<u8> = (0..2 * 784).map(|i| (i % 256) as u8).collect();
        let images = Tensor::from_slice(&pixels, (2, 784), &Device::Cpu).unwrap();
        let images = (images.to_dtype(DType::F32).unwrap() / 255.).unwrap();
        let labels = Tensor::new(&[0u8, 1], &Device::Cpu).unwrap();
        let data = convert(&images, &labels, &hub(Name::Mnist)).unwrap();
        assert_eq!(
            (data.image_shape(), data.pixels()),
            ([1, 28, 28], &pixels[..])
        );
    }

    #[test]
    fn images_of_another_size_are_an_error() {
        let images = Tensor::zeros((2, 100), DType::F32, &Device::Cpu).unwrap();
        let labels = Tensor::new(&[0u8, 1], &Device::Cpu).unwrap();
        assert!(convert(&images, &labels, &hub(Name::Mnist)).is_err());
    }
}
