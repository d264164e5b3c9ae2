//! [`LoaderState`]: where in an epoch a reader stands.

use serde::{Deserialize, Serialize};

use super::LoaderConfig;
use crate::{Error, Result, Shard};

/// Where in an epoch a reader stands, small enough for any checkpoint: what [`Epoch::state`](super::Epoch::state) gives
/// and [`Loader::resume`](super::Loader::resume) takes.
///
/// Beside the place, it holds the settings that the batches depend on. The number of workers and how far they work
/// ahead are not among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    /// The number of the epoch.
    pub epoch: u64,
    /// How many of its batches have been read.
    pub batch: u64,
    /// How many samples had to be left out of these.
    pub skipped: u64,
    batch_size: usize,
    seed: u64,
    shuffle: bool,
    drop_last: bool,
    shard: Shard,
    samples: Option<usize>,
}

impl LoaderState {
    pub(super) fn new(config: &LoaderConfig, samples: Option<usize>, epoch: u64) -> Self {
        Self {
            epoch,
            batch: 0,
            skipped: 0,
            batch_size: config.batch_size,
            seed: config.seed,
            shuffle: config.shuffle,
            drop_last: config.drop_last,
            shard: config.shard,
            samples,
        }
    }

    /// Refuses to go on with a loader whose batches are others.
    pub(super) fn check(&self, config: &LoaderConfig, samples: Option<usize>) -> Result<()> {
        let here = Self {
            batch: self.batch,
            skipped: self.skipped,
            ..Self::new(config, samples, self.epoch)
        };
        if here == *self {
            return Ok(());
        }
        Err(Error::Setting {
            what: "a loader, to go on in the middle of an epoch,",
            expected: self.settings(),
            found: here.settings(),
        })
    }

    fn settings(&self) -> String {
        let samples = self.samples.map_or("?".into(), |n| n.to_string());
        format!(
            "{samples} samples, batches of {}, seed {}, shuffle: {}, drop_last: {}, shard {} of {}",
            self.batch_size,
            self.seed,
            self.shuffle,
            self.drop_last,
            self.shard.rank,
            self.shard.of
        )
    }
}
