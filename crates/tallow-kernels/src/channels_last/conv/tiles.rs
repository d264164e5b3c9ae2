//! The tiles that a block of pixels is cut into, and the taps that each has to multiply.

use std::ops::Range;

use super::rows::RowTable;
use crate::workspace::{Scratch, Workspace};

/// The tiles of a block, found once and looked up for every panel of weights.
pub(super) struct Tiles<'w> {
    pub(super) count: usize,
    taps: usize,
    /// `[count]`: first pixel, end, first tap, end of taps, whether taps come before, and after.
    spans: Scratch<'w, usize>,
    /// `[count][taps]`: 1 where the tile reads more than padding.
    reads: Scratch<'w, usize>,
}

/// Numbers of a tile's span.
const SPAN: usize = 6;

/// A tile, and its part in a step of the sum.
pub(super) struct Span {
    pub(super) pixels: Range<usize>,
    /// Of the step's taps, those from the first to the last that the tile doesn't skip.
    pub(super) taps: Range<usize>,
    /// Whether no tap comes before the step, and none after it, that the tile doesn't skip. Of a tile that skips all
    /// taps the step with tap 0 is first and last; where the tile skips all of another step's taps neither is set.
    pub(super) first: bool,
    pub(super) last: bool,
}

impl<'w> Tiles<'w> {
    /// Cuts runs of `run` pixels into tiles of at most `most` that differ by at most one pixel.
    pub(super) fn new(
        rows: &RowTable<'_>,
        taps: usize,
        run: usize,
        most: usize,
        workspace: &'w Workspace,
    ) -> Self {
        let each = run.div_ceil(most);
        let count = rows.pixels / run * each;
        let mut tiles = Self {
            count,
            taps,
            spans: workspace.take_indices(count * SPAN),
            reads: workspace.take_indices(count * taps),
        };
        for tile in 0..count {
            let (start, number) = (tile / each * run, tile % each);
            let pixels = start + number * run / each..start + (number + 1) * run / each;
            for tap in 0..taps {
                tiles.reads[tile * taps + tap] = usize::from(rows.reads(tap, pixels.clone()));
            }
            tiles.spans[tile * SPAN..][..2].copy_from_slice(&[pixels.start, pixels.end]);
        }
        tiles
    }

    /// Finds what all tiles have to do in the step with these taps.
    pub(super) fn select(&mut self, taps: Range<usize>) {
        for tile in 0..self.count {
            let reads = &self.reads[tile * self.taps..][..self.taps];
            let (live, first, last) = live_taps(reads, taps.clone());
            let found = [live.start, live.end, usize::from(first), usize::from(last)];
            self.spans[tile * SPAN + 2..][..4].copy_from_slice(&found);
        }
    }

    /// A tile in the step that was selected.
    #[inline(always)]
    pub(super) fn span(&self, tile: usize) -> Span {
        let span: &[usize; SPAN] = &self.spans.as_chunks().0[tile];
        Span {
            pixels: span[0]..span[1],
            taps: span[2]..span[3],
            first: span[4] == 1,
            last: span[5] == 1,
        }
    }
}

fn live_taps(reads: &[usize], taps: Range<usize>) -> (Range<usize>, bool, bool) {
    let live = |tap: &usize| reads[*tap] == 1;
    let none_before = !(0..taps.start).any(|tap| live(&tap));
    let none_after = !(taps.end..reads.len()).any(|tap| live(&tap));
    let Some(start) = taps.clone().find(live) else {
        let dead = none_before && none_after && taps.start == 0;
        return (taps.start..taps.start, dead, dead);
    };
    let end = taps.rev().find(live).map_or(start, |tap| tap + 1);
    (start..end, none_before, none_after)
}
