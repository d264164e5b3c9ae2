//! Two sums for each channel of `[N, C, S]`, over samples and spatial positions.
//!
//! Batch norm's statistics, its gradients and the gradient of a bias are such sums. A leaf takes a
//! block of neighbouring channels, so that it reads long runs even where maps are small, and some
//! samples, so that few channels with large maps keep all threads busy as well.

use std::ops::Range;

use crate::lanes;
use crate::parallel::{LEAF, Split, for_each, grain, reduce};
use crate::shape::ChannelShape;
use crate::simd::{Isa, dispatch};

/// Most channels a block.
const BLOCK: usize = 32;
/// Elements of one sample that a block should read in one run.
const RUN: usize = 2048;

/// One channel of one sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane {
    pub(crate) sample: usize,
    pub(crate) channel: usize,
    /// Where the plane begins in the tensor.
    start: usize,
    /// Its length, `S`.
    spatial: usize,
}

impl Plane {
    /// Where the plane lies in the tensor.
    #[inline(always)]
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.spatial
    }
}

/// What is summed.
pub(crate) trait PlaneSums: Sync {
    /// Adds what one plane contributes to its channel's two sums.
    fn add_plane<I: Isa>(&self, plane: Plane, sums: &mut [I::Sums; 2]);
}

/// Sums all channels, then calls `finish` with the two sums of each channel of a block and that
/// block's share of `outputs`, whose items are channels.
pub(crate) fn for_each_block<D, Q, F>(shape: &ChannelShape, outputs: D, what: &Q, finish: F)
where
    D: Split,
    Q: PlaneSums,
    F: Fn(&[[f64; 2]], D) + Sync,
{
    let block = RUN.div_ceil(shape.spatial.max(1)).min(BLOCK);
    // Few elements: fewer blocks than threads could be, but each worth its hand-over.
    let per_channel = shape.batch * shape.spatial;
    let block = if per_channel * shape.channels <= LEAF {
        BLOCK
    } else {
        block
    };
    for_each(shape.channels, block, outputs, |first, outputs| {
        let channels = first..(first + block).min(shape.channels);
        let sums = reduce(
            shape.batch,
            grain(block * shape.spatial),
            0..shape.batch,
            |_, samples| block_leaf(shape, what, samples, channels.clone()),
            add_blocks,
        );
        finish(
            &sums.unwrap_or([[0.0; 2]; BLOCK])[..channels.len()],
            outputs,
        );
    });
}

dispatch! {
    fn block_leaf<I, Q: PlaneSums>(
        shape: &ChannelShape, what: &Q, samples: Range<usize>, channels: Range<usize>
    ) -> [[f64; 2]; BLOCK] {
        let mut sums = [[I::zero(); 2]; BLOCK];
        for sample in samples {
            for (sums, channel) in sums.iter_mut().zip(channels.clone()) {
                let start = (sample * shape.channels + channel) * shape.spatial;
                let plane = Plane { sample, channel, start, spatial: shape.spatial };
                what.add_plane::<I>(plane, sums);
            }
        }
        let mut totals = [[0.0; 2]; BLOCK];
        for (totals, sums) in totals.iter_mut().zip(sums).take(channels.len()) {
            *totals = [lanes::total::<I>(sums[0]), lanes::total::<I>(sums[1])];
        }
        totals
    }
}

fn add_blocks(mut a: [[f64; 2]; BLOCK], b: [[f64; 2]; BLOCK]) -> [[f64; 2]; BLOCK] {
    for (a, b) in a.iter_mut().zip(b) {
        a[0] += b[0];
        a[1] += b[1];
    }
    a
}
