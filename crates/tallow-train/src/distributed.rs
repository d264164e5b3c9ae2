//! Several ranks that train one model, each on its part of every batch: data parallel training, PyTorch's
//! `DistributedDataParallel`.
//!
//! A *rank* is one process or thread of a *world*, numbered from 0. All ranks hold the same parameters; each runs forward and
//! backward on its own samples; gradients are averaged, and every rank makes the same update. What ranks say to each other goes
//! through a [`Collective`]:
//!
//! | | ranks are |
//! |---|---|
//! | [`Alone`] | this process, the only one |
//! | [`Threads`], from [`run_threads`] | threads of this process: for tests, and to try things out |
//! | `Mpi` (feature `mpi`) | processes that `mpirun` started, on one machine or many |
//!
//! Give one to [`TrainerBuilder::distributed`](crate::TrainerBuilder::distributed), and its [`shard`](Collective::shard) to the
//! loaders. The same program runs on every rank:
//!
//! ```
//! use tallow_data::{LoaderConfig, datasets};
//! use tallow_tensor::Params;
//! use tallow_train::distributed::{Collective, run_threads};
//! use tallow_train::{ProgressDisplay, Trainer};
//! # use candle_nn::Module;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (train, _) = datasets::fashion_mnist_subset()?;
//! let train = train.take(256);
//! let losses = run_threads(2, |ranks| {
//!     // Two ranks with 32 samples each see what one process with 64 sees.
//!     let config = LoaderConfig { shard: ranks.shard(), ..LoaderConfig::train(32) };
//!     let loader = train.loader(config)?;
//!     let params = Params::f32_cpu();
//!     let model = candle_nn::linear(784, 10, params.builder())?;
//!     let model = candle_nn::func_t(move |xs, _| model.forward(&xs.flatten_from(1)?));
//!     let mut trainer = Trainer::builder(model, params)
//!         .distributed(ranks)
//!         .sync_batch_norm(true)
//!         .progress(ProgressDisplay::Off)
//!         .build()?;
//!     let history = trainer.fit(&loader, None)?;
//!     Ok::<_, tallow_train::Error>(history.epochs[0].train.loss)
//! })?;
//! assert_eq!(losses[0], losses[1]);
//! # Ok(())
//! # }
//! ```
//!
//! # What is the same, and what is not
//!
//! Two ranks with batch 64 make the step of one process with batch 128, but for rounding: gradients and metrics are weighed by the
//! samples of each rank, clipping sees the averaged gradient, and with
//! [`sync_batch_norm`](crate::TrainerBuilder::sync_batch_norm) batch norm takes its statistics from all ranks. Random transforms are
//! keyed by the sample, and so the same however samples are spread. Dropout and stochastic depth are not: every rank draws its own
//! masks, keyed by (seed, step, rank), so that two samples never share one. The same world gives the same bits on repeat.
//!
//! Without synchronised statistics each rank normalises by its own part, and buffers such as running statistics are averaged with
//! the gradients.
//!
//! # When gradients travel
//!
//! They are summed in buckets of 25 MB in a fixed order, the last parameters first. A bucket travels while the next is being
//! filled. It does not travel while the backward pass still runs: candle's tape, and a compiled step, hand gradients over when all
//! are there.
//!
//! # When a rank fails
//!
//! An error on one rank ends the run on all of them with [`Error::Rank`], which names it; so does a rank that ends too early, and
//! one that gives no answer within the collective's timeout. Checkpoints are written by rank 0 alone, whole or not at all.

mod alone;
mod batches;
mod buckets;
#[cfg(feature = "mpi")]
mod mpi;
mod parameters;
mod ranks;
mod threads;

use std::fmt;
use std::sync::Arc;

use tallow_data::Shard;

use crate::{Error, Result};

pub use alone::Alone;
#[cfg(feature = "mpi")]
pub use mpi::Mpi;
pub use threads::{Threads, run_threads, run_threads_within};

pub(crate) use batches::InStep;
pub(crate) use buckets::Part;
pub(crate) use ranks::Ranks;

/// How the ranks of a world reach each other.
///
/// Every rank makes the same calls in the same order, with as many values. A result is the same on every rank, to the bit, and the
/// same on repeat. After a failure every call fails.
///
/// Sums are begun and waited for apart, so that several are under way at once: [`start_sum`](Self::start_sum) gives a
/// [`Pending`] sum that a thread, a message library or a device's stream works on meanwhile.
pub trait Collective: Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn world_size(&self) -> usize;

    /// Begins to sum `values` over all ranks, element by element.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`] names the rank that failed; so in every method.
    fn start_sum(&self, values: Vec<f32>) -> Result<Pending>;

    /// Replaces `values` by their sums over all ranks.
    ///
    /// # Errors
    ///
    /// As [`start_sum`](Self::start_sum).
    fn sum_f64(&self, values: &mut [f64]) -> Result<()>;

    /// Replaces `bytes` by those of rank `root`.
    ///
    /// # Errors
    ///
    /// As [`start_sum`](Self::start_sum).
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()>;

    /// Ends the run on all ranks: their calls fail with `failure`, or with one that came before it.
    fn abort(&self, failure: Failure);

    /// Which rank failed, and why, once one has.
    fn failure(&self) -> Option<Failure>;

    /// Replaces `values` by their sums over all ranks.
    ///
    /// # Errors
    ///
    /// As [`start_sum`](Self::start_sum).
    fn sum(&self, values: &mut [f32]) -> Result<()> {
        let sums = self.start_sum(values.to_vec())?.wait()?;
        values.copy_from_slice(&sums);
        Ok(())
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    ///
    /// As [`start_sum`](Self::start_sum).
    fn barrier(&self) -> Result<()> {
        self.sum_f64(&mut [0.0])
    }

    /// This rank's part of the samples, for [`LoaderConfig::shard`](tallow_data::LoaderConfig::shard).
    fn shard(&self) -> Shard {
        Shard {
            rank: self.rank(),
            of: self.world_size(),
        }
    }

    /// Whether this is rank 0, which writes files and talks to people.
    fn is_first(&self) -> bool {
        self.rank() == 0
    }
}

impl<C: Collective + ?Sized> Collective for Arc<C> {
    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn world_size(&self) -> usize {
        (**self).world_size()
    }

    fn start_sum(&self, values: Vec<f32>) -> Result<Pending> {
        (**self).start_sum(values)
    }

    fn sum_f64(&self, values: &mut [f64]) -> Result<()> {
        (**self).sum_f64(values)
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        (**self).broadcast(root, bytes)
    }

    fn abort(&self, failure: Failure) {
        (**self).abort(failure);
    }

    fn failure(&self) -> Option<Failure> {
        (**self).failure()
    }
}

/// A sum that is under way. It goes on by itself; dropped, its result is lost, but other ranks get theirs.
#[must_use = "a sum that nobody waits for is lost"]
pub struct Pending(Box<dyn FnOnce() -> Result<Vec<f32>> + Send>);

impl Pending {
    /// `wait` blocks until the sums are there, and gives them.
    pub fn new(wait: impl FnOnce() -> Result<Vec<f32>> + Send + 'static) -> Self {
        Self(Box::new(wait))
    }

    /// The sums, once they are there.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`] names the rank that failed.
    pub fn wait(self) -> Result<Vec<f32>> {
        (self.0)()
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

/// The rank that ended a run, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its number.
    pub rank: usize,
    /// What went wrong there.
    pub problem: String,
}

impl From<Failure> for Error {
    fn from(Failure { rank, problem }: Failure) -> Self {
        Self::Rank { rank, problem }
    }
}
