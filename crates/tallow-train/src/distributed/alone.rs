//! [`Alone`]: a world of one.

use super::{Collective, Failure, Pending};
use crate::{Error, Result};

/// The only rank of its world: every sum is its own values. What a trainer uses that was given no other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Collective for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn world_size(&self) -> usize {
        1
    }

    fn start_sum(&self, values: Vec<f32>) -> Result<Pending> {
        Ok(Pending::new(move || Ok(values)))
    }

    fn sum_f64(&self, _values: &mut [f64]) -> Result<()> {
        Ok(())
    }

    fn broadcast(&self, root: usize, _bytes: &mut [u8]) -> Result<()> {
        Error::require(
            root == 0,
            "the rank to hear from",
            "0 in a world of one",
            &root,
        )
    }

    fn abort(&self, _failure: Failure) {}

    fn failure(&self) -> Option<Failure> {
        None
    }
}
