//! [`LoaderConfig`]: how a [`Loader`](super::Loader) makes its batches.

use std::time::Duration;

use crate::{Augment, Error, Normalize, Result, Shard};

/// How a [`Loader`](super::Loader) makes its batches.
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
    /// Scales the values to mean 0 and standard deviation 1; `None` leaves them at 0..1. For
    /// [`ImageDataset::loader`](crate::ImageDataset::loader); elsewhere it is a part of the pipeline.
    pub normalize: Option<Normalize>,
    /// Random changes to the images. For [`ImageDataset::loader`](crate::ImageDataset::loader); elsewhere they are a part of the
    /// pipeline.
    pub augment: Augment,
    /// How many threads make batches, one batch a thread; 0 makes them on the thread that asks. Does not change the
    /// batches.
    pub workers: usize,
    /// How many batches are in the making or wait to be read, in all workers together; 0 makes each when it is asked
    /// for. More than `workers` evens out slow batches; fewer leaves workers without work. Bounds the memory, and does not
    /// change the batches.
    pub prefetch: usize,
    /// Batches in page-locked memory, which copies faster to a GPU. For builds with CUDA; others have no use for it and
    /// only keep the setting.
    pub pin: bool,
    /// What a sample that can't be made means for the epoch.
    pub on_error: OnError,
    /// Which part of the samples is read, in data parallel training.
    pub shard: Shard,
    /// A worker that is this long with one sample, while its batch is waited for, ends the epoch with
    /// [`Error::Hung`]. `None` waits for ever. Watches workers, so not where there are none.
    pub timeout: Option<Duration>,
}

/// What a sample that can't be made means for the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// Its batch is an error.
    #[default]
    Fail,
    /// Its batch comes without it. [`Loader::skipped`](super::Loader::skipped) tells which.
    ///
    /// A batch none of whose samples can be made is an error all the same.
    Skip {
        /// So many may be missing from an epoch; beyond that, batches with missing samples are errors.
        at_most: u64,
    },
}

impl LoaderConfig {
    /// For training: shuffled, without the last partial batch, seed 42, two batches ahead on one worker.
    pub fn train(batch_size: usize) -> Self {
        Self {
            batch_size,
            shuffle: true,
            drop_last: true,
            seed: 42,
            normalize: None,
            augment: Augment::NONE,
            workers: 1,
            prefetch: 2,
            pin: false,
            on_error: OnError::Fail,
            shard: Shard::WHOLE,
            timeout: Some(Duration::from_secs(300)),
        }
    }

    /// For evaluation: every sample, in order, two batches ahead on one worker.
    pub fn eval(batch_size: usize) -> Self {
        Self {
            shuffle: false,
            drop_last: false,
            ..Self::train(batch_size)
        }
    }

    /// With so many workers, and two batches for each.
    #[must_use]
    pub fn with_workers(self, workers: usize) -> Self {
        Self {
            workers,
            prefetch: 2 * workers,
            ..self
        }
    }

    /// The samples of an epoch to batches; `None` if the samples aren't known beforehand.
    pub(super) fn batches(&self, samples: Option<usize>) -> Option<usize> {
        let size = self.batch_size.max(1);
        samples.map(|samples| match self.drop_last {
            true => samples / size,
            false => samples.div_ceil(size),
        })
    }

    pub(super) fn check(&self, samples: Option<usize>) -> Result<()> {
        if self.shard.rank >= self.shard.of {
            return Err(Error::Setting {
                what: "a shard",
                expected: "a rank below the number of shards (ranks count from 0)".into(),
                found: format!("rank {} of {}", self.shard.rank, self.shard.of),
            });
        }
        let smallest = if self.drop_last { self.batch_size } else { 1 };
        if self.batch_size > 0 && samples.is_none_or(|samples| samples >= smallest) {
            return Ok(());
        }
        let most = samples.map_or("or more samples".into(), |samples| {
            format!("to {samples} samples, the size of the data set")
        });
        Err(Error::Setting {
            what: "a loader",
            expected: format!("batches of 1 {most}"),
            found: format!(
                "batches of {} samples, drop_last: {}",
                self.batch_size, self.drop_last
            ),
        })
    }

    /// For loaders whose images come out of a pipeline.
    pub(super) fn check_pipeline(&self) -> Result<()> {
        if self.augment == Augment::NONE && self.normalize.is_none() {
            return Ok(());
        }
        Err(Error::Setting {
            what: "a loader with a pipeline",
            expected: "normalisation and random changes in the pipeline".into(),
            found: "augment or normalize in its LoaderConfig".into(),
        })
    }
}
