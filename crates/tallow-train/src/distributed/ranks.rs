//! [`Ranks`]: what a trainer says to the other ranks.

use std::sync::Arc;

use tallow_tensor::Params;
use tallow_tensor::sync::Reducer;

use super::{Alone, Collective, Failure, parameters};
use crate::{Error, Result};

/// The world that a trainer is part of.
#[derive(Clone)]
pub(crate) struct Ranks(Arc<dyn Collective>);

impl Default for Ranks {
    fn default() -> Self {
        Self(Arc::new(Alone))
    }
}

impl Ranks {
    pub(crate) fn new(collective: impl Collective + 'static) -> Self {
        Self(Arc::new(collective))
    }

    pub(super) fn collective(&self) -> &dyn Collective {
        &*self.0
    }

    pub(crate) fn rank(&self) -> usize {
        self.0.rank()
    }

    pub(crate) fn size(&self) -> usize {
        self.0.world_size()
    }

    pub(crate) fn is_first(&self) -> bool {
        self.0.is_first()
    }

    pub(crate) fn are_alone(&self) -> bool {
        self.size() == 1
    }

    /// Replaces `values` by their sums over all ranks.
    pub(crate) fn sum(&self, values: &mut [f64]) -> Result<()> {
        match self.are_alone() {
            true => Ok(()),
            false => self.0.sum_f64(values),
        }
    }

    /// How many ranks say yes.
    pub(crate) fn count(&self, yes: bool) -> Result<usize> {
        let mut count = [f64::from(u8::from(yes))];
        self.sum(&mut count)?;
        Ok(count[0] as usize)
    }

    /// The number of every rank, by rank; exact up to 2⁵³.
    fn gather(&self, own: f64) -> Result<Vec<f64>> {
        let mut all = vec![0.0; self.size()];
        all[self.rank()] = own;
        self.sum(&mut all)?;
        Ok(all)
    }

    /// The least number of any rank; none if a rank has none.
    pub(crate) fn least(&self, own: Option<u64>) -> Result<Option<u64>> {
        if self.are_alone() {
            return Ok(own);
        }
        let all = self.gather(own.map_or(-1.0, |own| own as f64))?;
        let least = all.into_iter().fold(f64::INFINITY, f64::min);
        Ok((least >= 0.0).then_some(least as u64))
    }

    /// Fails with the first rank that has something else than rank 0.
    pub(crate) fn require_same(&self, checksum: u32, problem: &str) -> Result<()> {
        if self.are_alone() {
            return Ok(());
        }
        let all = self.gather(f64::from(checksum))?;
        match all.iter().position(|other| *other != all[0]) {
            Some(rank) => Err(Error::Rank {
                rank,
                problem: problem.into(),
            }),
            None => Ok(()),
        }
    }

    /// Gives all ranks the parameters and buffers of rank 0.
    pub(crate) fn share_parameters(&self, params: &Params) -> Result<()> {
        if self.are_alone() {
            return Ok(());
        }
        let mut bytes = parameters::to_bytes(params)?;
        self.0.broadcast(0, &mut bytes)?;
        if self.is_first() {
            return Ok(());
        }
        parameters::from_bytes(params, &bytes)
    }

    /// Fails if ranks no longer hold the same parameters and buffers.
    pub(crate) fn require_same_parameters(&self, params: &Params) -> Result<()> {
        if self.are_alone() {
            return Ok(());
        }
        let checksum = crc32fast::hash(&parameters::to_bytes(params)?);
        self.require_same(
            checksum,
            "holds other parameters than rank 0; what changes parameters or gradients, such as a hook, must do so on every rank",
        )
    }

    /// Tells the other ranks of an error. If another rank failed first, the error becomes that one.
    pub(crate) fn guard<T>(&self, result: Result<T>) -> Result<T> {
        let Err(error) = result else { return result };
        if self.are_alone() {
            return Err(error);
        }
        match self.0.failure() {
            Some(failure) if failure.rank != self.rank() => Err(failure.into()),
            _ => {
                self.0.abort(match &error {
                    Error::Rank { rank, problem } => Failure {
                        rank: *rank,
                        problem: problem.clone(),
                    },
                    other => Failure {
                        rank: self.rank(),
                        problem: other.to_string(),
                    },
                });
                Err(error)
            }
        }
    }
}

impl Reducer for Ranks {
    fn sum(&self, values: &mut [f64]) -> candle_core::Result<()> {
        let summed = self.0.sum_f64(values);
        summed.map_err(candle_core::Error::wrap)
    }
}
