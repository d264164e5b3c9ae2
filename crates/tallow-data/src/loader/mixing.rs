//! Loaders whose batches are mixed by their workers: [`Loader::mixup`], [`Loader::cutmix`], [`Loader::mixup_or_cutmix`].

use std::sync::Arc;

use tallow_tensor::rng::{self, Purpose, Stream};

use super::Loader;
use super::job::{Feed, Job, Recipe};
use crate::transform::{CutMix, MixUp, check_alpha};
use crate::{Batch, Result, Shard};

impl Loader {
    /// The same batches with images mixed by [`MixUp`], and with both labels of each in [`Batch::mix`], for which the trainer's
    /// losses are ready. For training only.
    ///
    /// What is mixed how is keyed by the loader's seed, the epoch and the number of the batch.
    ///
    /// ```
    /// use tallow_data::{LoaderConfig, Mix, datasets};
    ///
    /// # fn main() -> tallow_data::Result<()> {
    /// let (train, _) = datasets::fashion_mnist_subset()?;
    /// let loader = train.loader(LoaderConfig::train(100))?.mixup(0.2)?;
    /// for batch in loader.batches(0)?.take(1) {
    ///     assert!(matches!(batch?.mix, Some(Mix::Pair { .. })));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) if `alpha` isn't above 0.
    pub fn mixup(self, alpha: f64) -> Result<Self> {
        check_alpha("MixUp", alpha)?;
        let seed = self.config.seed;
        Ok(self.mixed(Mixer::MixUp(MixUp { alpha, seed })))
    }

    /// The same batches with images mixed by [`CutMix`]; otherwise as [`mixup`](Self::mixup).
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) if `alpha` isn't above 0.
    pub fn cutmix(self, alpha: f64) -> Result<Self> {
        check_alpha("CutMix", alpha)?;
        let seed = self.config.seed;
        Ok(self.mixed(Mixer::CutMix(CutMix { alpha, seed })))
    }

    /// Each batch by the one or the other with equal chances: torchvision's `RandomChoice([MixUp, CutMix])`.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) if an alpha isn't above 0.
    pub fn mixup_or_cutmix(self, mixup_alpha: f64, cutmix_alpha: f64) -> Result<Self> {
        check_alpha("MixUp", mixup_alpha)?;
        check_alpha("CutMix", cutmix_alpha)?;
        let seed = self.config.seed;
        let mixup = MixUp {
            alpha: mixup_alpha,
            seed,
        };
        let cutmix = CutMix {
            alpha: cutmix_alpha,
            seed,
        };
        Ok(self.mixed(Mixer::Either(mixup, cutmix)))
    }

    fn mixed(self, mixer: Mixer) -> Self {
        let recipe = Mixing {
            recipe: self.recipe,
            mixer,
            shard: self.config.shard,
        };
        Self {
            recipe: Arc::new(recipe),
            ..self
        }
    }
}

#[derive(Clone, Copy)]
enum Mixer {
    MixUp(MixUp),
    CutMix(CutMix),
    Either(MixUp, CutMix),
}

impl Mixer {
    fn mix(self, batch: Batch, epoch: u64, number: u64) -> Result<Batch> {
        match self {
            Self::MixUp(mixup) => mixup.mix(batch, epoch, number),
            Self::CutMix(cutmix) => cutmix.mix(batch, epoch, number),
            Self::Either(mixup, cutmix) => {
                // Numbers from the middle: samples count from 0, and what mixing draws counts down from the other end.
                let key = rng::key(mixup.seed, Purpose::Augment, epoch, number + (1 << 63));
                match Stream::new(key).chance(0.5) {
                    true => mixup.mix(batch, epoch, number),
                    false => cutmix.mix(batch, epoch, number),
                }
            }
        }
    }
}

/// The batches of another recipe, mixed.
struct Mixing {
    recipe: Arc<dyn Recipe<Batch>>,
    mixer: Mixer,
    shard: Shard,
}

impl Recipe<Batch> for Mixing {
    fn open(&self, epoch: u64, done: u64) -> Result<Feed<Batch>> {
        let mut feed = self.recipe.open(epoch, done)?;
        let (mixer, shard) = (self.mixer, self.shard);
        let mut next = done;
        Ok(Box::new(move |watch| {
            let job = feed(watch)?;
            let number = next * shard.of as u64 + shard.rank as u64;
            next += 1;
            let job: Job<Batch> = Box::new(move |watch| {
                let mut made = job(watch);
                watch.begin("mixing", Arc::from("a batch"));
                made.batch = made.batch.and_then(|batch| mixer.mix(batch, epoch, number));
                made
            });
            Some(job)
        }))
    }

    fn samples(&self) -> Option<usize> {
        self.recipe.samples()
    }
}
