//! What the kernels of an algorithm read in place of a convolution's operands: the operands, copies rounded to bfloat16, or
//! pairs of bfloat16.
//!
//! Two channels that are summed over, neighbours of a group, make one word of pairs, and an odd group's last channel a
//! word with zero. So a convolution of pairs is one of half as many channels, each a word: tables of pointers,
//! tiles, packed panels and copies with padding are the same as for floats.

use super::Direction;
use crate::bf16;
use crate::channels_last::micro::Micro;
use crate::conv::Conv2dGeometry;
use crate::error::Result;
use crate::workspace::{Scratch, Workspace};

/// The operands of a convolution in one direction.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    /// The convolution of what is read: channels that are summed over are words.
    pub(super) geometry: Conv2dGeometry,
    pub(super) micro: &'static Micro,
    /// Whether floats are read as they are.
    exact: bool,
    direction: Direction,
    /// Channels of a group that are summed over.
    depth: usize,
}

impl Operands {
    /// Operands of [`Algorithm::Direct`](super::Algorithm::Direct).
    pub(super) fn exact(geometry: &Conv2dGeometry, direction: Direction) -> Self {
        Self::new(geometry, direction, true, Micro::current())
    }

    /// Operands of [`Algorithm::Bf16`](super::Algorithm::Bf16).
    pub(super) fn bf16(geometry: &Conv2dGeometry, direction: Direction) -> Self {
        Self::new(geometry, direction, false, Micro::bf16())
    }

    fn new(
        geometry: &Conv2dGeometry,
        direction: Direction,
        exact: bool,
        micro: &'static Micro,
    ) -> Self {
        let mut words = *geometry;
        let summed = match direction {
            Direction::Forward => &mut words.in_channels,
            Direction::BackwardInput => &mut words.out_channels,
        };
        let depth = *summed / geometry.groups;
        if micro.pairs {
            *summed = geometry.groups * depth.div_ceil(2);
        }
        Self {
            geometry: words,
            micro,
            exact,
            direction,
            depth,
        }
    }

    /// What is read in place of pixels of the channels that are summed over, or `None` for themselves.
    pub(super) fn pixels<'w>(
        &self,
        values: &[f32],
        workspace: &'w Workspace,
    ) -> Result<Option<Scratch<'w>>> {
        self.copy(values, [self.depth, 1], workspace)
    }

    /// What is packed in place of the weights, or `None` for themselves.
    pub(super) fn weights<'w>(
        &self,
        w: &[f32],
        workspace: &'w Workspace,
    ) -> Result<Option<Scratch<'w>>> {
        let [height, width] = self.geometry.kernel;
        let filter = match self.direction {
            Direction::Forward => height * width,
            Direction::BackwardInput => {
                self.geometry.in_channels / self.geometry.groups * height * width
            }
        };
        self.copy(w, [self.depth, filter], workspace)
    }

    /// A copy of matrices `[channels, width]`, of pairs of channels or rounded.
    fn copy<'w>(
        &self,
        values: &[f32],
        [channels, width]: [usize; 2],
        workspace: &'w Workspace,
    ) -> Result<Option<Scratch<'w>>> {
        if self.exact {
            return Ok(None);
        }
        if !self.micro.pairs {
            return rounded(values, workspace).map(Some);
        }
        let matrices = values.len() / (channels * width);
        let mut copy = workspace.take(matrices * channels.div_ceil(2) * width);
        bf16::pair_rows(values, [channels, width], &mut copy);
        Ok(Some(copy))
    }

    /// What the weight gradient reads in place of `dy`, or `None` for itself: it pairs pixels, not channels, and does so
    /// as it goes.
    pub(super) fn gradient<'w>(
        &self,
        dy: &[f32],
        workspace: &'w Workspace,
    ) -> Result<Option<Scratch<'w>>> {
        if self.exact || self.micro.pairs {
            return Ok(None);
        }
        rounded(dy, workspace).map(Some)
    }
}

fn rounded<'w>(values: &[f32], workspace: &'w Workspace) -> Result<Scratch<'w>> {
    let mut copy = workspace.take(values.len());
    bf16::round(values, &mut copy)?;
    Ok(copy)
}
