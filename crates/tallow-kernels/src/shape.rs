//! The one shape that several kernels share: channels between a batch and folded spatial axes.

use crate::error::{Result, checked_product};

/// A tensor `[N, C, S]`: `[N, C, H, W]` with its spatial axes folded into one, or `[N, C]` with
/// `spatial` 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelShape {
    /// `N`, the number of samples.
    pub batch: usize,
    /// `C`.
    pub channels: usize,
    /// `S`, elements of one channel of one sample.
    pub spatial: usize,
}

impl ChannelShape {
    /// `[batch, channels, spatial]`.
    pub fn new(batch: usize, channels: usize, spatial: usize) -> Self {
        Self {
            batch,
            channels,
            spatial,
        }
    }

    /// Elements of the whole tensor.
    pub(crate) fn len(&self, kernel: &'static str) -> Result<usize> {
        checked_product(kernel, &[self.batch, self.channels, self.spatial])
    }
}
