//! The batches of an [`ImageDataset`], straight from its bytes: [`ImageDataset::loader`].

use candle_core::{Device, Tensor};
use tallow_tensor::rng::Stream;

use super::samples::{Collect, Samples};
use super::{Loader, LoaderConfig};
use crate::augment::Change;
use crate::normalize::{self, Table};
use crate::{Batch, Dataset, Error, ImageDataset, Result};

impl ImageDataset {
    /// A source of batches of this data set: images `[N, C, H, W]` f32, labels `[N]` u32, on the CPU.
    ///
    /// For other changes than [`Augment`](crate::Augment) knows, give the data set to [`Loader::train`] with a pipeline.
    ///
    /// ```
    /// use tallow_data::{BatchSource, LoaderConfig, datasets};
    ///
    /// # fn main() -> tallow_data::Result<()> {
    /// let (train, _) = datasets::fashion_mnist_subset()?;
    /// let normalize = Some(train.channel_stats()?);
    /// let loader = train.loader(LoaderConfig { normalize, ..LoaderConfig::train(100) })?;
    ///
    /// assert_eq!(loader.len_hint(), Some(80));
    /// for batch in loader.epoch(0)?.take(1) {
    ///     assert_eq!(batch?.images.dims(), [100, 1, 28, 28]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if there is not one batch in the data set, the padding of a random crop could push an image
    /// out of its frame, or the means or deviations don't fit the channels.
    pub fn loader(&self, config: LoaderConfig) -> Result<Loader> {
        let [channels, height, width] = self.image_shape();
        if config.augment.crop_padding >= height.min(width) {
            return Err(Error::Setting {
                what: "a random crop",
                expected: format!("padding smaller than the images, which are {height}x{width}"),
                found: format!("padding {}", config.augment.crop_padding),
            });
        }
        let pixels = Pixels {
            tables: normalize::tables(config.normalize.as_ref(), channels)?,
            dataset: self.clone(),
        };
        let augment = config.augment;
        let recipe = Samples::new(
            Numbers(self.len()),
            move |index, draw: &mut Stream| Ok((index, augment.draw(draw))),
            pixels,
            config.clone(),
        );
        Loader::of(recipe, config)
    }
}

/// The numbers of a data set's samples.
struct Numbers(usize);

impl Dataset for Numbers {
    type Sample = usize;

    fn len(&self) -> usize {
        self.0
    }

    fn get(&self, index: usize) -> Result<usize> {
        Ok(index)
    }
}

/// Bytes of a data set, looked up into the memory that will be a batch's tensor.
struct Pixels {
    dataset: ImageDataset,
    tables: Vec<Table>,
}

struct Filled {
    values: Vec<f32>,
    labels: Vec<u32>,
}

impl Collect<(usize, Change)> for Pixels {
    type Part = Filled;
    type Batch = Batch;

    fn begin(&self, size: usize) -> Filled {
        let image: usize = self.dataset.image_shape().iter().product();
        Filled {
            values: vec![0.; size * image],
            labels: Vec::with_capacity(size),
        }
    }

    fn add(&self, part: &mut Filled, (index, change): (usize, Change)) -> Result<()> {
        let [channels, height, width] = self.dataset.image_shape();
        let size = channels * height * width;
        let pixels = &self.dataset.pixels()[index * size..][..size];
        let values = &mut part.values[part.labels.len() * size..][..size];
        change.write(pixels, [height, width], &self.tables, values);
        part.labels.push(self.dataset.labels()[index]);
        Ok(())
    }

    fn finish(&self, part: Filled) -> Result<Batch> {
        let [channels, height, width] = self.dataset.image_shape();
        let count = part.labels.len();
        let shape = (count, channels, height, width);
        Ok(Batch {
            images: Tensor::from_vec(part.values, shape, &Device::Cpu)?,
            labels: Tensor::from_vec(part.labels, count, &Device::Cpu)?,
            mix: None,
        })
    }
}
