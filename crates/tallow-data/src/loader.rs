//! [`Loader`]: the batches of an [`ImageDataset`], shuffled, changed at random, normalised, and made ahead of their
//! use.
//!
//! The pixels lie in memory already; what images are read from lies with [`datasets`](crate::datasets).

use std::fmt;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use tallow_tensor::rng::{self, Purpose, Stream};

use crate::augment::Change;
use crate::normalize::{self, Table};
use crate::{Augment, Batch, BatchSource, Batches, Error, ImageDataset, Normalize, Result, pipe};

/// How a [`Loader`] makes its batches.
///
/// Begin with [`train`](Self::train) or [`eval`](Self::eval) and set what should differ:
///
/// ```
/// use tallow_data::{Augment, LoaderConfig};
///
/// let config = LoaderConfig { augment: Augment::flip_and_crop(2), ..LoaderConfig::train(128) };
/// assert!(config.shuffle && config.drop_last);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LoaderConfig {
    /// Samples a batch.
    pub batch_size: usize,
    /// Another order in every epoch, from `seed`.
    pub shuffle: bool,
    /// Leaves out the samples that don't fill a last batch.
    pub drop_last: bool,
    /// What shuffling and augmentation are drawn from.
    pub seed: u64,
    /// Scales the values to mean 0 and standard deviation 1; `None` leaves them at 0..1.
    pub normalize: Option<Normalize>,
    /// Random changes to the images.
    pub augment: Augment,
    /// How many batches are made ahead of their use; 0 makes each when it is asked for. Does not change the batches.
    pub prefetch: usize,
}

impl LoaderConfig {
    /// For training: shuffled, without the last partial batch, seed 42, two batches ahead.
    pub fn train(batch_size: usize) -> Self {
        Self {
            batch_size,
            shuffle: true,
            drop_last: true,
            seed: 42,
            normalize: None,
            augment: Augment::NONE,
            prefetch: 2,
        }
    }

    /// For evaluation: every sample, in order, two batches ahead.
    pub fn eval(batch_size: usize) -> Self {
        Self {
            shuffle: false,
            drop_last: false,
            ..Self::train(batch_size)
        }
    }
}

impl ImageDataset {
    /// A source of batches of this data set: images `[N, C, H, W]` f32, labels `[N]` u32, on the CPU.
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
        let smallest = if config.drop_last {
            config.batch_size
        } else {
            1
        };
        if config.batch_size == 0 || self.len() < smallest {
            return Err(Error::Setting {
                what: "a loader",
                expected: format!(
                    "batches of 1 to {} samples, the size of the data set",
                    self.len()
                ),
                found: format!(
                    "batches of {} samples, drop_last: {}",
                    config.batch_size, config.drop_last
                ),
            });
        }
        let [channels, height, width] = self.image_shape();
        if config.augment.crop_padding >= height.min(width) {
            return Err(Error::Setting {
                what: "a random crop",
                expected: format!("padding smaller than the images, which are {height}x{width}"),
                found: format!("padding {}", config.augment.crop_padding),
            });
        }
        let tables = normalize::tables(config.normalize.as_ref(), channels)?.into();
        Ok(Loader {
            dataset: self.clone(),
            config,
            tables,
        })
    }
}

/// The batches of an [`ImageDataset`]; see [`ImageDataset::loader`].
///
/// Every batch is a function of the data set, the configuration and the number of the epoch: the order is drawn from
/// (seed, epoch), the changes to an image from (seed, epoch, the image's place in the data set).
#[derive(Clone)]
pub struct Loader {
    dataset: ImageDataset,
    config: LoaderConfig,
    tables: Arc<[Table]>,
}

impl Loader {
    /// The data set that the batches are made of.
    pub fn dataset(&self) -> &ImageDataset {
        &self.dataset
    }

    /// How the batches are made.
    pub fn config(&self) -> &LoaderConfig {
        &self.config
    }

    /// The samples' places in the data set, in the order of an epoch.
    fn order(&self, epoch: u64) -> Vec<usize> {
        if !self.config.shuffle {
            return (0..self.dataset.len()).collect();
        }
        let key = rng::key(self.config.seed, Purpose::Shuffle, epoch, 0);
        Stream::new(key).permutation(self.dataset.len())
    }

    /// The batch of the given samples.
    fn collate(&self, epoch: u64, samples: &[usize]) -> Result<Batch> {
        let [channels, height, width] = self.dataset.image_shape();
        let size = channels * height * width;
        let mut values = vec![0f32; samples.len() * size];
        let mut labels = Vec::with_capacity(samples.len());
        for (&index, values) in samples.iter().zip(values.chunks_exact_mut(size)) {
            let pixels = &self.dataset.pixels()[index * size..][..size];
            self.change(epoch, index)
                .write(pixels, [height, width], &self.tables, values);
            labels.push(self.dataset.labels()[index]);
        }
        let count = labels.len();
        Ok(Batch {
            images: Tensor::from_vec(values, (count, channels, height, width), &Device::Cpu)?,
            labels: Tensor::from_vec(labels, count, &Device::Cpu)?,
            mix: None,
        })
    }

    fn change(&self, epoch: u64, index: usize) -> Change {
        let augment = self.config.augment;
        if augment == Augment::NONE {
            return Change::default();
        }
        let key = rng::key(self.config.seed, Purpose::Augment, epoch, index as u64);
        augment.draw(&mut Stream::new(key))
    }
}

impl BatchSource for Loader {
    fn epoch(&self, epoch: u64) -> Result<Batches<'_>> {
        let loader = self.clone();
        let batches = pipe::from_iter(self.order(epoch))
            .batch(self.config.batch_size, self.config.drop_last)?
            .collate(move |samples| loader.collate(epoch, &samples))
            .prefetch(self.config.prefetch);
        Ok(Box::new(batches))
    }

    fn len_hint(&self) -> Option<usize> {
        let (samples, size) = (self.dataset.len(), self.config.batch_size);
        Some(if self.config.drop_last {
            samples / size
        } else {
            samples.div_ceil(size)
        })
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("dataset", &self.dataset)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
