//! Every n-th item of a stream, for one of n readers that are to get the same number of them.

use crate::{Result, Shard};

/// The items of one reader. Unlike [`pipe::Shard`](crate::pipe::Shard) it can leave out a last round that is not whole, and reads
/// a round ahead for that.
pub(super) struct Split<I, T> {
    items: I,
    shard: Shard,
    even: bool,
    /// Values of the round that was begun.
    seen: usize,
    mine: Option<T>,
}

impl<I, T> Split<I, T> {
    pub(super) fn new(items: I, shard: Shard, even: bool) -> Self {
        Self {
            items,
            shard,
            even,
            seen: 0,
            mine: None,
        }
    }
}

impl<T, I: Iterator<Item = Result<T>>> Iterator for Split<I, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.items.next() {
                Some(Ok(value)) => {
                    if self.seen == self.shard.rank {
                        self.mine = Some(value);
                    }
                    self.seen += 1;
                }
                // Every reader sees every error, so that none goes on alone.
                Some(Err(error)) => return Some(Err(error)),
                None if self.even => return None,
                None => return self.mine.take().map(Ok),
            }
            if self.seen >= self.shard.of {
                self.seen = 0;
                return self.mine.take().map(Ok);
            }
        }
    }
}
