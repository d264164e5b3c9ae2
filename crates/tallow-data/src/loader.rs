//! [`Loader`]: the batches of any source, made by worker threads ahead of their use, the same for any number of them.
//!
//! In order: settings (`config`), what passes between threads (`job`), the threads (`workers`) and what they are
//! doing (`watch`), how samples become batches (`samples`, `collect`, `mixing`, and `in_memory` for bytes that lie in
//! memory already), an epoch as it is read (`epoch`, `state`, `stats`). Where samples come from is left to [`source`](crate::source),
//! what happens to pictures to [`transform`](crate::transform).

mod collect;
mod config;
mod epoch;
mod in_memory;
mod job;
mod mixing;
mod samples;
mod state;
mod stats;
mod watch;
mod workers;

use std::fmt;
use std::sync::Arc;

use tallow_tensor::rng::Stream;

use crate::source::Source;
use crate::transform::{Pipeline, Repeatable, Transform};
use crate::{Batch, BatchSource, Batches, Image, Result};
use collect::{Rows, Values};
use job::Recipe;
use samples::Samples;
use stats::Counters;

pub use collect::Row;
pub use config::{LoaderConfig, OnError};
pub use epoch::Epoch;
pub use state::LoaderState;
pub use stats::LoaderStats;

/// The batches of a source: PyTorch's `DataLoader`.
///
/// Every batch is a function of the source, the pipeline, the configuration and the number of the epoch. The order is
/// drawn from (seed, epoch), the random changes to a sample from (seed, epoch, the sample's number). Neither the number
/// of workers nor where reading began changes a bit.
///
/// A worker makes a whole batch at a time, and writes samples straight into the memory that becomes its tensor. Up to
/// `prefetch` batches are in memory beside the one that is being used.
#[derive(Clone)]
pub struct Loader<B = Batch> {
    recipe: Arc<dyn Recipe<B>>,
    config: LoaderConfig,
    samples: Option<usize>,
    counters: Arc<Counters>,
}

impl Loader {
    /// Batches for training: images of `source`, each changed by `pipeline`.
    ///
    /// ```
    /// use tallow_data::transform::pipeline;
    /// use tallow_data::{Loader, LoaderConfig, datasets};
    ///
    /// # fn main() -> tallow_data::Result<()> {
    /// let (train, _) = datasets::fashion_mnist_subset()?;
    /// let normalize = train.channel_stats()?;
    /// let changes = pipeline()
    ///     .random_crop(28, 2)
    ///     .random_horizontal_flip(0.5)
    ///     .to_tensor()
    ///     .normalize(normalize);
    ///
    /// let loader = Loader::train(train, changes, LoaderConfig::train(100).with_workers(2))?;
    /// for batch in loader.batches(0)?.take(1) {
    ///     assert_eq!(batch?.images.dims(), [100, 1, 28, 28]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) if the source has not one batch of that size, the shard is none of its number, or
    /// `augment` or `normalize` are set, which are the pipeline's business, or a setting of the pipeline makes no sense.
    pub fn train<S, T>(source: S, pipeline: Pipeline<T>, config: LoaderConfig) -> Result<Self>
    where
        S: Source<Sample = (Image, u32)>,
        T: Transform<Image> + 'static,
        T::Output: Row,
    {
        config.check_pipeline()?;
        pipeline.check()?;
        let change = move |(image, label), draw: &mut Stream| {
            let row = pipeline.apply(image, draw)?;
            Ok((row, label))
        };
        let recipe = Samples::new(source, change, Rows, config.clone());
        Self::of(recipe, config)
    }

    /// Batches for evaluation. Only pipelines that draw nothing are taken: a figure is that of the model, not of luck.
    ///
    /// ```compile_fail
    /// use tallow_data::transform::pipeline;
    /// use tallow_data::{Loader, LoaderConfig, datasets};
    ///
    /// # fn main() -> tallow_data::Result<()> {
    /// let (_, test) = datasets::fashion_mnist_subset()?;
    /// let changes = pipeline().random_horizontal_flip(0.5).to_tensor();
    /// let loader = Loader::eval(test, changes, LoaderConfig::eval(100))?; // draws random numbers
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`train`](Self::train).
    pub fn eval<S, T>(source: S, pipeline: Pipeline<T>, config: LoaderConfig) -> Result<Self>
    where
        S: Source<Sample = (Image, u32)>,
        T: Transform<Image> + 'static,
        T::Kind: Repeatable,
        T::Output: Row,
    {
        Self::train(source, pipeline, config)
    }
}

impl<B: Send + 'static> Loader<B> {
    /// Batches of any kind: samples of `source`, each changed by `change`, and made to a batch by `collate`, all on the
    /// workers.
    ///
    /// `change` draws random numbers from the stream that it is given, which is keyed by seed, epoch and sample.
    ///
    /// ```
    /// use tallow_data::{Loader, LoaderConfig, source};
    ///
    /// # fn main() -> tallow_data::Result<()> {
    /// let words = source::list(["one", "two", "three", "four"]);
    /// let config = LoaderConfig::eval(2).with_workers(2);
    /// let loader = Loader::collated(
    ///     words,
    ///     |word, draw| Ok(if draw.chance(0.5) { word.to_uppercase() } else { word.into() }),
    ///     |words| Ok(words.join(" ")),
    ///     config,
    /// )?;
    /// let lines: tallow_data::Result<Vec<String>> = loader.batches(0)?.collect();
    /// assert_eq!(lines?[1].to_lowercase(), "three four");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`train`](Loader::train).
    pub fn collated<S, T, F, C>(
        source: S,
        change: F,
        collate: C,
        config: LoaderConfig,
    ) -> Result<Self>
    where
        S: Source,
        T: 'static,
        F: Fn(S::Sample, &mut Stream) -> Result<T> + Send + Sync + 'static,
        C: Fn(Vec<T>) -> Result<B> + Send + Sync + 'static,
    {
        config.check_pipeline()?;
        let recipe = Samples::new(source, change, Values(collate), config.clone());
        Self::of(recipe, config)
    }

    fn of(recipe: impl Recipe<B> + 'static, config: LoaderConfig) -> Result<Self> {
        let samples = recipe.samples();
        config.check(samples)?;
        Ok(Self {
            recipe: Arc::new(recipe),
            config,
            samples,
            counters: Arc::default(),
        })
    }

    /// The batches of epoch number `epoch`, counted from 0.
    ///
    /// # Errors
    ///
    /// What keeps the source or a thread from starting. What goes wrong later comes as an item.
    pub fn batches(&self, epoch: u64) -> Result<Epoch<B>> {
        self.resume(&LoaderState::new(&self.config, self.samples, epoch))
    }

    /// The batches that are left of an epoch where a reader's [`state`](Epoch::state) was taken, the same as that
    /// reader would have seen.
    ///
    /// Samples that are reached by number are not read again. A stream is read again up to that place, without what its
    /// workers do.
    ///
    /// ```
    /// use tallow_data::{LoaderConfig, datasets};
    ///
    /// # fn main() -> tallow_data::Result<()> {
    /// let (train, _) = datasets::fashion_mnist_subset()?;
    /// let loader = train.loader(LoaderConfig::train(500))?;
    /// let mut epoch = loader.batches(0)?;
    /// epoch.next();
    /// let state = epoch.state(); // small, and implements serde's traits
    ///
    /// let other = train.loader(LoaderConfig::train(500).with_workers(2))?;
    /// assert_eq!(other.resume(&state)?.count(), 15);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) if the state is that of a loader with other batches; and as [`batches`](Self::batches).
    pub fn resume(&self, state: &LoaderState) -> Result<Epoch<B>> {
        state.check(&self.config, self.samples)?;
        let feed = self.recipe.open(state.epoch, state.batch)?;
        Epoch::new(feed, &self.config, state.clone(), self.counters.clone())
    }
}

impl<B> Loader<B> {
    /// How the batches are made.
    pub fn config(&self) -> &LoaderConfig {
        &self.config
    }

    /// What was handed out so far, by this loader and its clones, in all epochs.
    pub fn stats(&self) -> LoaderStats {
        self.counters.read()
    }

    /// The messages of the first 1,000 samples that were left out, see [`OnError::Skip`].
    pub fn skipped(&self) -> Vec<String> {
        self.counters.skipped()
    }
}

impl BatchSource for Loader {
    fn epoch(&self, epoch: u64) -> Result<Batches<'_>> {
        Ok(Box::new(self.batches(epoch)?))
    }

    fn epoch_from(&self, epoch: u64, done: u64) -> Result<Batches<'_>> {
        let mut state = LoaderState::new(&self.config, self.samples, epoch);
        state.batch = done;
        Ok(Box::new(self.resume(&state)?))
    }

    fn len_hint(&self) -> Option<usize> {
        self.config.batches(self.samples)
    }

    fn stats(&self) -> Option<LoaderStats> {
        Some(self.counters.read())
    }
}

impl<B> fmt::Debug for Loader<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("samples", &self.samples)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
