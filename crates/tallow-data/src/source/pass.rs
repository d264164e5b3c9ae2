//! [`Pass`]: which of a source's samples are read, and in what order; [`Shard`]: one reader of several.

use serde::{Deserialize, Serialize};
use tallow_tensor::rng::{self, Purpose, Stream};

/// Which part of the samples is read, for data parallel training: that of reader `rank` of `of` readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shard {
    /// This reader, counted from 0.
    pub rank: usize,
    /// All readers.
    pub of: usize,
}

impl Shard {
    /// The only reader: all samples.
    pub const WHOLE: Self = Self { rank: 0, of: 1 };
}

impl Default for Shard {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// One pass over the samples of a source, as one reader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// What orders are drawn from.
    pub seed: u64,
    /// The number of the epoch, from 0.
    pub epoch: u64,
    /// Whether the order is drawn anew for each epoch.
    pub shuffle: bool,
    /// The reader.
    pub shard: Shard,
    /// Gives every reader the same number of samples, and leaves out the up to `shard.of - 1` that are left over.
    pub even: bool,
}

impl Pass {
    /// A key for the order of this pass's samples; the same for all readers. Indices tell several orders apart.
    pub fn shuffle_key(&self, index: u64) -> u64 {
        rng::key(self.seed, Purpose::Shuffle, self.epoch, index)
    }

    /// The numbers below `len`, in the order of this pass: this reader's part of them.
    ///
    /// ```
    /// use tallow_data::{Pass, Shard};
    ///
    /// let reader = |rank| Pass { seed: 1, epoch: 0, shuffle: true, shard: Shard { rank, of: 2 }, even: false };
    /// let mut both = [reader(0).order(5), reader(1).order(5)].concat();
    /// both.sort_unstable();
    /// assert_eq!(both, [0, 1, 2, 3, 4]);
    /// ```
    pub fn order(&self, len: usize) -> Vec<usize> {
        let all = match self.shuffle {
            true => Stream::new(self.shuffle_key(0)).permutation(len),
            false => (0..len).collect(),
        };
        if self.shard == Shard::WHOLE {
            return all;
        }
        let mine = all.into_iter().skip(self.shard.rank);
        let mine = mine.step_by(self.shard.of.max(1));
        mine.take(self.share(len)).collect()
    }

    /// How many of `len` samples are this reader's.
    pub fn share(&self, len: usize) -> usize {
        let Shard { rank, of } = self.shard;
        match self.even {
            true => len / of.max(1),
            false => len.saturating_sub(rank).div_ceil(of.max(1)),
        }
    }
}
