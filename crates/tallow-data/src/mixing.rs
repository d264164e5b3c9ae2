//! [`Mixing`]: MixUp or CutMix over the batches of a source, ready for a trainer. How two images become one is the business of
//! [`transform`](crate::transform), what the loss makes of two labels the trainer's.

use candle_core::Tensor;

use crate::transform::{CutMix, MixUp, Mixed};
use crate::{Batch, BatchSource, Batches, Error, LoaderStats, Result};

/// A source whose batches are mixed, made by [`MixUp::over`] or [`CutMix::over`].
///
/// A batch is mixed by (seed, epoch, place in the epoch), so that an epoch gone on with in the middle is the same.
#[derive(Debug, Clone)]
pub struct Mixing<S> {
    source: S,
    mixer: Mixer,
}

#[derive(Debug, Clone, Copy)]
enum Mixer {
    MixUp(MixUp),
    CutMix(CutMix),
}

impl MixUp {
    /// The batches of `source`, mixed: give it to a trainer in place of the source, for training only.
    ///
    /// ```
    /// use tallow_data::transform::MixUp;
    /// use tallow_data::{BatchSource, LoaderConfig, datasets};
    ///
    /// # fn main() -> tallow_data::Result<()> {
    /// let (train, _) = datasets::fashion_mnist_subset()?;
    /// let train = train.loader(LoaderConfig::train(100))?;
    /// let mixed = MixUp { alpha: 0.2, seed: 42 }.over(train);
    /// for batch in mixed.epoch(0)?.take(1) {
    ///     assert!(batch?.mix.is_some());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn over<S>(self, source: S) -> Mixing<S> {
        Mixing {
            source,
            mixer: Mixer::MixUp(self),
        }
    }
}

impl CutMix {
    /// The batches of `source`, mixed: give it to a trainer in place of the source, for training only.
    pub fn over<S>(self, source: S) -> Mixing<S> {
        Mixing {
            source,
            mixer: Mixer::CutMix(self),
        }
    }
}

impl<S: BatchSource> BatchSource for Mixing<S> {
    fn epoch(&self, epoch: u64) -> Result<Batches<'_>> {
        self.epoch_from(epoch, 0)
    }

    fn epoch_from(&self, epoch: u64, done: u64) -> Result<Batches<'_>> {
        let mixer = self.mixer;
        let batches = (done..).zip(self.source.epoch_from(epoch, done)?);
        Ok(Box::new(batches.map(move |(place, batch)| {
            mixer.mix(&batch?, epoch, place)
        })))
    }

    fn stats(&self) -> Option<LoaderStats> {
        self.source.stats()
    }

    fn len_hint(&self) -> Option<usize> {
        self.source.len_hint()
    }
}

impl Mixer {
    fn mix(self, batch: &Batch, epoch: u64, place: u64) -> Result<Batch> {
        if batch.mix.is_some() {
            return Err(Error::Setting {
                what: "MixUp or CutMix",
                expected: "batches with one label an image".into(),
                found: "a batch that is mixed already".into(),
            });
        }
        let shape: [usize; 4] = batch.images.dims4()?.into();
        let mut images = batch.images.flatten_all()?.to_vec1::<f32>()?;
        let labels = batch.labels.to_vec1::<u32>()?;
        let Mixed { others, lambda, .. } = match self {
            Self::MixUp(mix) => mix.apply(&mut images, shape, &labels, epoch, place)?,
            Self::CutMix(mix) => mix.apply(&mut images, shape, &labels, epoch, place)?,
        };
        let device = batch.images.device();
        let others = Tensor::new(others, device)?;
        let lambda = Tensor::full(lambda as f32, labels.len(), device)?;
        let images = Tensor::from_vec(images, &shape, device)?;
        Batch::new(images, batch.labels.clone())?.with_pair(others, lambda)
    }
}
