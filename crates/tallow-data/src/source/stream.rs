//! [`stream`]: any iterator as a source.

use super::split::Split;
use super::{Items, Pass, Source};
use crate::{Error, Result, pipe};

/// A source of what an iterator gives; `open` makes the iterator of a pass.
///
/// All readers of data parallel training go over all samples, and each keeps every n-th. The iterator is asked for one
/// sample at a time, by one thread at a time; what it gives should be cheap, and be made into a sample by
/// [`then`](Streamed::then), which runs on all workers.
///
/// To go on in the middle of an epoch, the iterator is read again up to that place; what `then` does is not done
/// again.
///
/// ```
/// use tallow_data::{Image, LoaderConfig, Loader, source};
///
/// # fn main() -> tallow_data::Result<()> {
/// // Numbers from somewhere, and the pictures that are made of them.
/// let pictures = source::stream(|_pass| (0..10u8).map(Ok))
///     .then(|number: u8| Ok((Image::new(vec![number; 4], [2, 2], 1)?, u32::from(number))));
///
/// let config = LoaderConfig { workers: 2, drop_last: false, ..LoaderConfig::train(4) };
/// let loader = Loader::collated(
///     pictures.shuffle_buffer(5),
///     |sample, _draw| Ok(sample),
///     |samples: Vec<(Image, u32)>| Ok(samples.len()),
///     config,
/// )?;
/// let sizes: tallow_data::Result<Vec<_>> = loader.batches(0)?.collect();
/// assert_eq!(sizes?, [4, 4, 2]);
/// # Ok(())
/// # }
/// ```
pub fn stream<T, I, O>(open: O) -> Streamed<O, fn(T) -> Result<T>>
where
    I: Iterator<Item = Result<T>> + Send + 'static,
    O: Fn(Pass) -> I + Send + Sync + 'static,
    T: Send + 'static,
{
    Streamed {
        open,
        load: Ok,
        buffer: 1,
    }
}

/// The source that [`stream`] makes.
#[derive(Debug, Clone)]
pub struct Streamed<O, L> {
    open: O,
    load: L,
    buffer: usize,
}

impl<O, L> Streamed<O, L> {
    /// Makes samples of what the iterator gives, on the loader's workers.
    pub fn then<T, U, F: Fn(T) -> Result<U>>(self, load: F) -> Streamed<O, F> {
        Streamed {
            open: self.open,
            load,
            buffer: self.buffer,
        }
    }

    /// Where the loader shuffles: each item is drawn from the next `items` ones, which are held in memory. Without a
    /// buffer the order stays that of the iterator. See [`Pipe::shuffle`](crate::Pipe::shuffle).
    #[must_use]
    pub fn shuffle_buffer(mut self, items: usize) -> Self {
        self.buffer = items;
        self
    }
}

impl<T, U, I, O, L> Source for Streamed<O, L>
where
    I: Iterator<Item = Result<T>> + Send + 'static,
    O: Fn(Pass) -> I + Send + Sync + 'static,
    L: Fn(T) -> Result<U> + Send + Sync + 'static,
    T: Send + 'static,
{
    type Item = (u64, T);
    type Sample = U;

    fn items(&self, pass: &Pass) -> Result<Items<(u64, T)>> {
        let numbered = (0..).zip((self.open)(*pass));
        let numbered = numbered.map(|(number, item)| {
            let named = |error| Error::sample(format!("item {number} of a stream"), error);
            item.map(|item| (number, item)).map_err(named)
        });
        let items = pipe::try_from_iter(numbered);
        Ok(match pass.shuffle {
            true => {
                let mixed = items.shuffle(self.buffer, pass.shuffle_key(0));
                Box::new(Split::new(mixed, pass.shard, pass.even))
            }
            false => Box::new(Split::new(items, pass.shard, pass.even)),
        })
    }

    fn load(&self, (_, item): (u64, T)) -> Result<U> {
        (self.load)(item)
    }

    fn describe(&self, (number, _): &(u64, T)) -> String {
        format!("item {number} of a stream")
    }

    fn key(&self, (number, _): &(u64, T)) -> Option<u64> {
        Some(*number)
    }
}
