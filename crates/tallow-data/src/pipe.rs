//! Data pipes: iterators of `Result<T>` that are put together from small steps.
//!
//! A pipe is read from its end: each step pulls what it needs from the one before it, so nothing is done before it
//! is asked for, and nothing is kept but what a step's buffer holds. The steps are those of PyTorch's iterable
//! data pipes, one file each:
//!
//! | here | PyTorch | does |
//! |---|---|---|
//! | [`from_iter`], [`try_from_iter`] | `IterableWrapper` | begins a pipe |
//! | [`map`](Pipe::map), [`try_map`](Pipe::try_map) | `Mapper` | one value to one value |
//! | [`filter`](Pipe::filter) | `Filter` | leaves values out |
//! | [`shuffle`](Pipe::shuffle) | `Shuffler` | mixes values within a buffer |
//! | [`shard`](Pipe::shard) | `ShardingFilter` | every n-th value, for one of n readers |
//! | [`batch`](Pipe::batch) | `Batcher` | values to lists of values |
//! | [`collate`](Pipe::collate) | `Collator` | a list of values to one batch |
//! | [`prefetch`](Pipe::prefetch) | `Prefetcher` | reads ahead on a thread of its own |
//!
//! An error is an item like any other: a step hands it on in its place and goes on, so the reader decides whether
//! one bad sample ends the run. `collect::<Result<Vec<_>>>()` and `?` end at the first.
//!
//! ```
//! use tallow_data::pipe;
//!
//! # fn main() -> tallow_data::Result<()> {
//! let sums = pipe::from_iter(0u32..10)
//!     .map(|x| x * x)
//!     .shuffle(4, 42)
//!     .batch(3, false)?
//!     .collate(|squares| Ok(squares.iter().sum::<u32>()))
//!     .prefetch(2);
//! let sums = sums.collect::<tallow_data::Result<Vec<_>>>()?;
//! assert_eq!(sums.len(), 4);
//! assert_eq!(sums.iter().sum::<u32>(), 285);
//! # Ok(())
//! # }
//! ```
//!
//! Left to others: what the items are, and which files they come from ([`datasets`](crate::datasets)).

mod batch;
mod collate;
mod filter;
mod from_iter;
mod map;
mod prefetch;
mod shard;
mod shuffle;

pub use batch::Batched;
pub use collate::Collate;
pub use filter::Filter;
pub use from_iter::{FromIter, from_iter, try_from_iter};
pub use map::{Map, TryMap};
pub use prefetch::Prefetch;
pub use shard::Shard;
pub use shuffle::Shuffle;

use crate::Result;

/// A data pipe: an iterator of `Result<T>` with the methods that lengthen it.
///
/// Its own methods take the place of [`Iterator`]'s methods of the same name: [`map`](Pipe::map) sees the values
/// and lets errors pass. To work on the `Result`s themselves, take the iterator out with
/// [`into_inner`](Pipe::into_inner).
#[derive(Debug, Clone)]
#[must_use = "a pipe does nothing until it is read"]
pub struct Pipe<I> {
    inner: I,
}

impl<I> Pipe<I> {
    /// The plain iterator, with [`Iterator`]'s own methods.
    pub fn into_inner(self) -> I {
        self.inner
    }
}

impl<T, I: Iterator<Item = Result<T>>> Iterator for Pipe<I> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        self.inner.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl<T, I: Iterator<Item = Result<T>>> Pipe<I> {
    /// Applies `f` to every value.
    ///
    /// ```
    /// use tallow_data::pipe;
    ///
    /// let squares = pipe::from_iter(1..4).map(|x| x * x);
    /// assert_eq!(squares.collect::<tallow_data::Result<Vec<_>>>()?, [1, 4, 9]);
    /// # Ok::<(), tallow_data::Error>(())
    /// ```
    pub fn map<U, F: FnMut(T) -> U>(self, f: F) -> Pipe<Map<I, F>> {
        Pipe {
            inner: Map::new(self.inner, f),
        }
    }

    /// Applies `f`, which can fail, to every value. What it fails on becomes an error in the value's place.
    ///
    /// ```
    /// use tallow_data::{Error, pipe};
    ///
    /// let halves = pipe::from_iter([4, 5, 6]).try_map(|x| match x % 2 {
    ///     0 => Ok(x / 2),
    ///     _ => Err(Error::custom(format!("{x} is odd"))),
    /// });
    /// let halves: Vec<_> = halves.collect();
    /// assert_eq!(*halves[2].as_ref().unwrap(), 3);
    /// assert_eq!(halves[1].as_ref().unwrap_err().to_string(), "5 is odd");
    /// ```
    pub fn try_map<U, F: FnMut(T) -> Result<U>>(self, f: F) -> Pipe<TryMap<I, F>> {
        Pipe {
            inner: TryMap::new(self.inner, f),
        }
    }

    /// Keeps the values for which `keep` is true. Errors are kept.
    ///
    /// ```
    /// use tallow_data::pipe;
    ///
    /// let even = pipe::from_iter(0..7).filter(|x| x % 2 == 0);
    /// assert_eq!(even.collect::<tallow_data::Result<Vec<_>>>()?, [0, 2, 4, 6]);
    /// # Ok::<(), tallow_data::Error>(())
    /// ```
    pub fn filter<P: FnMut(&T) -> bool>(self, keep: P) -> Pipe<Filter<I, P>> {
        Pipe {
            inner: Filter::new(self.inner, keep),
        }
    }

    /// Mixes the values: each next one is drawn from the next `buffer` of those that are left.
    ///
    /// A buffer as large as the data gives every order the same chance; a smaller one needs less memory, but moves
    /// no value forward by more than its size. A buffer of 0 or 1 keeps the order. The order depends on `key` and the
    /// number of values alone; take one key an epoch, from [`rng::key`](tallow_tensor::rng::key). An error is handed
    /// on as soon as it is read, ahead of the values that wait in the buffer.
    ///
    /// ```
    /// use tallow_data::pipe;
    ///
    /// let order = |key| pipe::from_iter(0..100).shuffle(100, key).collect::<tallow_data::Result<Vec<_>>>();
    /// assert_eq!(order(1)?, order(1)?);
    /// assert_ne!(order(1)?, order(2)?);
    /// # Ok::<(), tallow_data::Error>(())
    /// ```
    pub fn shuffle(self, buffer: usize, key: u64) -> Pipe<Shuffle<I, T>> {
        Pipe {
            inner: Shuffle::new(self.inner, buffer, key),
        }
    }

    /// Keeps the values numbered `rank`, `rank + world`, `rank + 2 * world`, ..: the part of one of `world` readers.
    ///
    /// The parts of all ranks together are the whole, and differ in size by one at most. Every rank sees every
    /// error, so that none goes on alone. Put it behind `shuffle` with the same key on every rank.
    ///
    /// ```
    /// use tallow_data::pipe;
    ///
    /// let mine = pipe::from_iter(0..7).shard(1, 3)?;
    /// assert_eq!(mine.collect::<tallow_data::Result<Vec<_>>>()?, [1, 4]);
    /// # Ok::<(), tallow_data::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) if `rank` is not below `world`.
    pub fn shard(self, rank: usize, world: usize) -> Result<Pipe<Shard<I>>> {
        Ok(Pipe {
            inner: Shard::new(self.inner, rank, world)?,
        })
    }

    /// Collects every `size` values in a list; what remains at the end is a shorter list, or dropped with
    /// `drop_last`.
    ///
    /// Training drops the last one by default, as in PyTorch's `DataLoader(drop_last=True)`: batches of one shape,
    /// and no batch norm over two samples. An error is handed on as soon as it is read; the values before it
    /// stay in the list that is being filled.
    ///
    /// ```
    /// use tallow_data::pipe;
    ///
    /// let lists = |drop_last| pipe::from_iter(0..5).batch(2, drop_last)?.collect::<tallow_data::Result<Vec<_>>>();
    /// assert_eq!(lists(false)?, [vec![0, 1], vec![2, 3], vec![4]]);
    /// assert_eq!(lists(true)?, [vec![0, 1], vec![2, 3]]);
    /// # Ok::<(), tallow_data::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) if `size` is 0.
    pub fn batch(self, size: usize, drop_last: bool) -> Result<Pipe<Batched<I, T>>> {
        Ok(Pipe {
            inner: Batched::new(self.inner, size, drop_last)?,
        })
    }

    /// Reads up to `ahead` items ahead, on a thread of its own. 0 reads on the caller's thread.
    ///
    /// The items and their order are the same for any `ahead`. A panic in an earlier step becomes
    /// [`Error::Panicked`](crate::Error::Panicked), after which the pipe ends. Dropping the pipe stops the thread
    /// and waits for it, which takes as long as the item that it works on.
    ///
    /// ```
    /// use tallow_data::pipe;
    ///
    /// let ahead = pipe::from_iter(0..5).map(|x| x + 1).prefetch(2);
    /// assert_eq!(ahead.collect::<tallow_data::Result<Vec<_>>>()?, [1, 2, 3, 4, 5]);
    /// # Ok::<(), tallow_data::Error>(())
    /// ```
    pub fn prefetch(self, ahead: usize) -> Pipe<Prefetch<T>>
    where
        I: Send + 'static,
        T: Send + 'static,
    {
        Pipe {
            inner: Prefetch::new(self.inner, ahead),
        }
    }
}

impl<T, I: Iterator<Item = Result<Vec<T>>>> Pipe<I> {
    /// Makes one batch of every list, with `f`.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    /// use tallow_data::pipe;
    ///
    /// # fn main() -> tallow_data::Result<()> {
    /// let mut batches = pipe::from_iter([1f32, 2., 3., 4.])
    ///     .batch(2, true)?
    ///     .collate(|values| Ok(Tensor::new(values, &Device::Cpu)?));
    /// let first = batches.next().transpose()?;
    /// assert_eq!(first.map(|t| t.dims().to_vec()), Some(vec![2]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn collate<U, F: FnMut(Vec<T>) -> Result<U>>(self, f: F) -> Pipe<Collate<I, F>> {
        Pipe {
            inner: Collate::new(self.inner, f),
        }
    }
}
