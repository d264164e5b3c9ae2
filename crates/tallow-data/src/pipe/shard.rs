//! Every n-th value, for one of n readers (PyTorch's `ShardingFilter`): see [`Pipe::shard`](super::Pipe::shard).

use crate::{Error, Result};

/// A pipe with the values that belong to one rank.
#[derive(Debug, Clone)]
pub struct Shard<I> {
    items: I,
    world: usize,
    /// Values to skip before the next one of this rank.
    skip: usize,
}

impl<I> Shard<I> {
    pub(super) fn new(items: I, rank: usize, world: usize) -> Result<Self> {
        if rank >= world {
            return Err(Error::Setting {
                what: "a shard",
                expected: "a rank below the number of shards (ranks count from 0)".into(),
                found: format!("rank {rank} of {world}"),
            });
        }
        Ok(Self {
            items,
            world,
            skip: rank,
        })
    }
}

impl<T, I: Iterator<Item = Result<T>>> Iterator for Shard<I> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.items.next()? {
                Ok(_) if self.skip > 0 => self.skip -= 1,
                Ok(value) => {
                    self.skip = self.world - 1;
                    return Some(Ok(value));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (lower, upper) = self.items.size_hint();
        let mine = (lower.saturating_sub(self.skip)).div_ceil(self.world);
        (mine, upper)
    }
}
