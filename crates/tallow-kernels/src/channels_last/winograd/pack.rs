//! Packed weights: where they lie, and the tasks that make them.

use super::kernels::{Correlate, Kernels};
use super::products::Product;
use super::weights::{PACK_ROWS, Pack, TAPS};
use super::{Direction, Tile};
use crate::conv::Conv2dGeometry;
use crate::error::{Result, check_len};
use crate::parallel;
use crate::shared::SharedMut;
use std::ops::Range;

/// A cache line between planes: their starts would else fall into the same cache sets.
pub(super) const LINE: usize = 16;

/// The filters of a correlation.
#[derive(Clone, Copy)]
pub(super) enum Filters<'a> {
    /// As [`Packing`] has them.
    Packed(&'a [f32]),
    /// `[O, C, 3, 3]`.
    Raw(&'a [f32]),
}

impl Filters<'_> {
    pub(super) fn check(
        &self,
        kernel: &'static str,
        geometry: &Conv2dGeometry,
        packing: &Packing,
    ) -> Result<()> {
        match self {
            Self::Packed(packed) => check_len(kernel, "packed", packed, packing.len()),
            Self::Raw(w) => check_len(kernel, "w", w, super::weight_len(geometry)),
        }
    }
}

/// Packed weights `[panel][point][depth][columns]`.
#[derive(Clone, Copy)]
pub(super) struct Packing {
    pub(super) algorithm: &'static Correlate,
    pub(super) product: unsafe fn(&Product),
    direction: Direction,
    /// Channels that are summed over.
    pub(super) depth: usize,
    /// Channels of the output.
    pub(super) channels: usize,
    /// Channels of a panel.
    pub(super) columns: usize,
}

impl Packing {
    pub(super) fn new(geometry: &Conv2dGeometry, direction: Direction, tile: Tile) -> Self {
        let (depth, channels) = match direction {
            Direction::Forward => (geometry.in_channels, geometry.out_channels),
            Direction::BackwardInput => (geometry.out_channels, geometry.in_channels),
        };
        let kernels = Kernels::current();
        Self {
            algorithm: kernels.correlate(geometry, direction, tile),
            product: kernels.product,
            direction,
            depth,
            channels,
            columns: kernels.columns,
        }
    }

    /// Of pairs of 16-bit whole numbers, for the forward direction with stride 1: `geometry` has words for channels that
    /// are summed over.
    pub(super) fn integers(geometry: &Conv2dGeometry) -> Self {
        let kernels = Kernels::integers();
        Self {
            algorithm: &kernels.correlate,
            product: kernels.product,
            direction: Direction::Forward,
            depth: geometry.in_channels,
            channels: geometry.out_channels,
            columns: kernels.columns,
        }
    }

    pub(super) fn panels(&self) -> usize {
        self.channels.div_ceil(self.columns)
    }

    /// Points of a filter.
    fn planes(&self) -> usize {
        self.algorithm.sizes.weight_planes()
    }

    /// Floats from one point of a panel to the next.
    pub(super) fn plane(&self) -> usize {
        self.depth * self.columns + LINE
    }

    /// Floats of a panel.
    pub(super) fn panel(&self) -> usize {
        self.planes() * self.plane()
    }

    pub(super) fn len(&self) -> usize {
        self.panels() * self.panel()
    }

    pub(super) fn pack(&self, w: &[f32], packed: &mut [f32]) {
        let packed = SharedMut::new(packed);
        let chunks = self.depth.div_ceil(PACK_ROWS);
        let grain = parallel::grain(self.planes() * PACK_ROWS * self.columns);
        let panels = self.panels();
        let items = panels * chunks;
        parallel::for_each(items, grain, 0..items, |_, range| {
            for item in range {
                // In the order in which the weights lie.
                let (panel, chunk) = match self.direction {
                    Direction::Forward => (item / chunks, item % chunks),
                    Direction::BackwardInput => (item % panels, item / panels),
                };
                self.pack_chunk(w, panel, chunk * PACK_ROWS, packed);
            }
        });
    }

    /// Packs rows `first..` of a panel.
    fn pack_chunk(&self, w: &[f32], panel: usize, first: usize, packed: SharedMut) {
        let rows = PACK_ROWS.min(self.depth - first);
        let (plane, from) = (self.plane(), panel * self.panel() + first * self.columns);
        let len = (self.planes() - 1) * plane + rows * self.columns;
        // SAFETY: the range was just checked, and no two chunks share elements.
        unsafe { self.pack_rows(w, panel, first..first + rows, packed.at(from, len), plane) };
    }

    /// Packs at most [`PACK_ROWS`] rows of a panel to `out`, the points `plane` floats apart.
    ///
    /// # Safety
    /// `out` must be valid for the rows of all points, and nobody else's.
    pub(super) unsafe fn pack_rows(
        &self,
        w: &[f32],
        panel: usize,
        rows: Range<usize>,
        out: *mut f32,
        plane: usize,
    ) {
        let column = panel * self.columns;
        let columns = self.columns.min(self.channels - column);
        let strides = match self.direction {
            Direction::Forward => [TAPS, self.depth * TAPS],
            Direction::BackwardInput => [self.channels * TAPS, TAPS],
        };
        let start = rows.start * strides[0] + column * strides[1];
        let end = start + (rows.len() - 1) * strides[0] + (columns - 1) * strides[1] + TAPS;
        let args = Pack {
            weights: w[start..end].as_ptr(),
            strides,
            rows: rows.len(),
            columns,
            flip: matches!(self.direction, Direction::BackwardInput),
            out,
            plane,
        };
        // SAFETY: the algorithm is of a level of this CPU; the filters were just checked, and the rest is the caller's.
        unsafe { (self.algorithm.pack)(&args) };
    }
}
