//! [`InStep`]: an epoch that ends on all ranks at once.

use tallow_data::{Batch, Batches};

use super::Ranks;

/// Batches of one rank, for as long as every rank has one.
pub(crate) struct InStep<'a> {
    batches: Batches<'a>,
    ranks: Ranks,
}

impl<'a> InStep<'a> {
    /// The batches themselves where there is one rank.
    pub(crate) fn of(batches: Batches<'a>, ranks: &Ranks) -> Batches<'a> {
        if ranks.are_alone() {
            return batches;
        }
        let ranks = ranks.clone();
        Box::new(Self { batches, ranks })
    }
}

impl Iterator for InStep<'_> {
    type Item = tallow_data::Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match self.batches.next() {
            // The error ends the run, and tells the others, who wait to hear whether there is a batch.
            Some(Err(error)) => return Some(Err(error)),
            Some(Ok(batch)) => Some(batch),
            None => None,
        };
        match self.ranks.count(next.is_some()) {
            Ok(have) if have == self.ranks.size() => next.map(Ok),
            Ok(_) => None,
            Err(error) => Some(Err(tallow_data::Error::custom(error))),
        }
    }
}
