//! Data pipes: iterators of `Result<T>` that are put together from small steps.
//!
//! A pipe is read from its end: each step pulls what it needs from the one before it, so nothing is done before it
//! is asked for, and nothing is kept but what a step's buffer holds. The steps are those of PyTorch's iterable
//! data pipes, one file each:
//!
//! | here | PyTorch | does |
//! |---|---|---|
//! | [`from_iter`], [`try_from_iter`] | `IterableWrapper` | begins a pipe |
//! | [`map`](Pipe::map), [`try_map`](Pipe::try_map) | `Mapper` | one item to one item |
//!
//! An error is an item like any other: a step hands it on in its place and goes on, so the reader decides whether
//! one bad sample ends the run.
//!
//! Left to others: what the items are, and which files they come from ([`datasets`](crate::datasets)).

mod from_iter;
mod map;

pub use from_iter::{FromIter, from_iter, try_from_iter};
pub use map::{Map, TryMap};

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
}
