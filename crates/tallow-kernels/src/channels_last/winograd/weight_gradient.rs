//! Weight gradient: points of inputs and of gradients, multiplied and summed over tiles, then transformed to filters.
//!
//! Where the sums are few, each task takes a range of tiles through both steps by itself, and the sums of the ranges are
//! joined. With more channels the points of many tiles are found first; then each task sums a block of filters and
//! channels over all of them. Sums are added up in chunks, each from zero, which keeps their error small.

use super::kernels::{Kernels, WeightGradients};
use super::pack::LINE;
use super::products::Reduction;
use super::tiles::{MAX_PIXELS, ToPoints};
use super::tiling::Tiling;
use super::transform::Sizes;
use super::weights::{TAPS, Unpack};
use crate::parallel;
use crate::shared::SharedMut;
use crate::workspace::{Scratch, Workspace};
use std::ops::Range;

/// Floats of points that tasks share, in the cache of all cores.
const SHARED_POINTS: usize = 4 * 1024 * 1024;

/// Tiles that are added up from zero before they meet the rest of the sum.
const CHUNK: usize = 128;

/// Filters and channels of a task.
const BLOCK: [usize; 2] = [64, 64];

/// Most floats of the sums of all ranges, most ranges, and fewest tiles of one.
const RANGE_SUMS: usize = 5 * 512 * 1024;
const MOST_RANGES: usize = 8;
const RANGE_TILES: usize = 96;

/// Tiles of a range whose points are found together.
const RANGE_BLOCK: usize = 32;

/// The gradient with respect to 3x3 filters.
pub(super) struct WeightGradient<'a> {
    pub(super) algorithm: &'static WeightGradients,
    /// Tiles of `x`.
    pub(super) inputs: Tiling,
    /// The same tiles, of `dy`.
    pub(super) outputs: Tiling,
    pub(super) x: &'a [f32],
    pub(super) dy: &'a [f32],
    pub(super) channels: usize,
    pub(super) filters: usize,
}

/// How points of some tiles lie: `[point][block of channels][tile][width]`.
///
/// What a register tile reads lies in one piece.
#[derive(Clone, Copy)]
struct Layout {
    tiles: usize,
    /// Channels of a block.
    width: usize,
    blocks: usize,
}

impl Layout {
    fn new(tiles: usize, width: usize, channels: usize) -> Self {
        let blocks = channels.div_ceil(width);
        Self {
            tiles,
            width,
            blocks,
        }
    }

    /// Floats from one block to the next, with a line that keeps their starts in different cache sets.
    fn block(&self) -> usize {
        self.tiles * self.width + LINE
    }

    /// Floats from one point to the next.
    fn plane(&self) -> usize {
        self.blocks * self.block() + LINE
    }
}

/// Points of inputs and of gradients, and how they lie.
#[derive(Clone, Copy)]
struct Points<'a> {
    layouts: [Layout; 2],
    values: [SharedMut<'a>; 2],
}

/// Filters and channels whose sums a task works on, `[point][panel][filter][column]`.
struct Part {
    filters: Range<usize>,
    channels: Range<usize>,
    /// Panels that cover the channels.
    panels: usize,
    /// Floats from one point to the next.
    plane: usize,
}

impl Part {
    fn new(filters: Range<usize>, channels: Range<usize>) -> Self {
        let columns = Kernels::current().columns;
        let panels = channels.len().div_ceil(columns);
        let plane = filters.len() * panels * columns + LINE;
        Self {
            filters,
            channels,
            panels,
            plane,
        }
    }
}

impl WeightGradient<'_> {
    pub(super) fn run(&self, dw: &mut [f32], workspace: &Workspace) {
        let tiles = self.inputs.count();
        if tiles == 0 {
            dw.fill(0.0);
            return;
        }
        let mut zeros = workspace.take(self.channels.max(self.filters));
        zeros.fill(0.0);
        let all = self.all();
        let ranges = (RANGE_SUMS / (self.weight_planes() * all.plane)).min(tiles / RANGE_TILES);
        if ranges > 1 {
            self.run_ranges(&all, ranges.min(MOST_RANGES), &zeros, dw, workspace);
        } else {
            self.run_parts(&zeros, dw, workspace);
        }
    }

    /// Every task sums some of the tiles at all points, which it keeps to itself; then the sums are joined.
    fn run_ranges(
        &self,
        all: &Part,
        ranges: usize,
        zeros: &[f32],
        dw: &mut [f32],
        workspace: &Workspace,
    ) {
        let tiles = self.inputs.count();
        let range = tiles.div_ceil(ranges);
        let ranges = tiles.div_ceil(range);
        let sums_len = self.weight_planes() * all.plane;
        let mut sums = workspace.take(ranges * sums_len);
        let data = parallel::rows(&mut sums[..], sums_len);
        parallel::for_each(ranges, 1, data, |index, sums| {
            let first = index * range;
            let end = tiles.min(first + range);
            let layouts = self.layouts(RANGE_BLOCK);
            let mut values = self.take_points(layouts, workspace);
            for block in (first..end).step_by(RANGE_BLOCK) {
                let values = values.each_mut().map(|values| SharedMut::new(values));
                let points = Points { layouts, values };
                let block = block..end.min(block + RANGE_BLOCK);
                self.transform(block.clone(), block.start, points, zeros);
                self.sum(all, points, block.len(), block.start > first, sums.data);
            }
        });
        let columns = Kernels::current().columns;
        let groups = self.filters.div_ceil(LINE);
        let dw = SharedMut::new(dw);
        parallel::for_each(all.panels * groups, 1, (), |index, ()| {
            let (panel, group) = (index / groups, index % groups * LINE);
            let part = Part::new(
                group..self.filters.min(group + LINE),
                panel * columns..self.channels.min((panel + 1) * columns),
            );
            let mut joined = workspace.take(self.weight_planes() * part.plane);
            let first = (panel * self.filters + group) * columns;
            self.join(&part, &sums, (first, all.plane), &mut joined);
            self.store(&part, &joined, dw);
        });
    }

    /// `joined`: a part's sums over all ranges, one after the other; in the ranges they start at `first`.
    fn join(&self, part: &Part, sums: &[f32], (first, plane): (usize, usize), joined: &mut [f32]) {
        joined.fill(0.0);
        let len = part.plane - LINE;
        for sums in sums.chunks_exact(self.weight_planes() * plane) {
            let planes = sums.chunks_exact(plane);
            for (joined, sums) in joined.chunks_exact_mut(part.plane).zip(planes) {
                for (joined, sum) in joined.iter_mut().zip(&sums[first..][..len]) {
                    *joined += sum;
                }
            }
        }
    }

    /// The points of many tiles are found together; then every task sums some of the filters and channels.
    fn run_parts(&self, zeros: &[f32], dw: &mut [f32], workspace: &Workspace) {
        let tiles = self.inputs.count();
        let tile_points = self.algorithm.sizes.point_planes() * (self.channels + self.filters);
        let most = (SHARED_POINTS / tile_points).max(1);
        // Rounds of equal length, of whole chunks where there are several.
        let rounds = tiles.div_ceil(most);
        let round = if rounds > 1 {
            tiles.div_ceil(rounds).next_multiple_of(CHUNK)
        } else {
            tiles
        };
        let several = round < tiles;
        let layouts = self.layouts(round);
        let mut values = self.take_points(layouts, workspace);
        let parts = self.parts();
        let part_len = self.weight_planes() * (BLOCK[0] * BLOCK[1] + LINE);
        let mut sums = workspace.take(if several { parts * part_len } else { 0 });
        let (sums, dw) = (SharedMut::new(&mut sums), SharedMut::new(dw));
        for first in (0..tiles).step_by(round) {
            let values = values.each_mut().map(|values| SharedMut::new(values));
            let points = Points { layouts, values };
            let end = tiles.min(first + round);
            let grain = parallel::grain(tile_points);
            parallel::for_each(end - first, grain, first..end, |_, tiles| {
                self.transform(tiles, first, points, zeros);
            });
            parallel::for_each(parts, 1, (), |index, ()| {
                let part = self.part(index);
                if several {
                    // SAFETY: every part has its own sums.
                    let sums = unsafe { sums.slice(index * part_len, part_len) };
                    self.sum(&part, points, end - first, first > 0, sums);
                    if end == tiles {
                        self.store(&part, sums, dw);
                    }
                } else {
                    let mut sums = workspace.take(part_len);
                    self.sum(&part, points, tiles, false, &mut sums);
                    self.store(&part, &sums, dw);
                }
            });
        }
    }

    /// Layouts for points of inputs, a panel wide, and of gradients.
    fn layouts(&self, tiles: usize) -> [Layout; 2] {
        [
            Layout::new(tiles, Kernels::current().columns.max(LINE), self.channels),
            Layout::new(tiles, LINE, self.filters),
        ]
    }

    /// Room for the points of inputs and gradients.
    fn take_points<'w>(&self, layouts: [Layout; 2], workspace: &'w Workspace) -> [Scratch<'w>; 2] {
        layouts.map(|layout| workspace.take(self.algorithm.sizes.point_planes() * layout.plane()))
    }

    /// Points of a filter.
    fn weight_planes(&self) -> usize {
        self.algorithm.sizes.weight_planes()
    }

    fn parts(&self) -> usize {
        self.filters.div_ceil(BLOCK[0]) * self.channels.div_ceil(BLOCK[1])
    }

    fn part(&self, index: usize) -> Part {
        let across = self.channels.div_ceil(BLOCK[1]);
        let (filter, channel) = (index / across * BLOCK[0], index % across * BLOCK[1]);
        Part::new(
            filter..self.filters.min(filter + BLOCK[0]),
            channel..self.channels.min(channel + BLOCK[1]),
        )
    }

    fn all(&self) -> Part {
        Part::new(0..self.filters, 0..self.channels)
    }

    /// Finds the points of inputs and gradients, those of tile `first` at the start.
    fn transform(&self, tiles: Range<usize>, first: usize, points: Points, zeros: &[f32]) {
        let algorithm = self.algorithm;
        let (x_zeros, dy_zeros) = (&zeros[..self.channels], &zeros[..self.filters]);
        let Sizes {
            inputs, outputs, ..
        } = algorithm.sizes;
        let [x, dy] = points.layouts;
        let [x_points, dy_points] = points.values;
        for tile in tiles {
            let pixels = self.inputs.pixels(tile, inputs, self.x, x_zeros);
            self.transform_tile(
                algorithm.input,
                &pixels,
                self.channels,
                tile - first,
                (x, x_points),
            );
            let pixels = self.outputs.pixels(tile, outputs, self.dy, dy_zeros);
            self.transform_tile(
                algorithm.gradient,
                &pixels,
                self.filters,
                tile - first,
                (dy, dy_points),
            );
        }
    }

    /// Finds the points of one tile, block by block.
    fn transform_tile(
        &self,
        kernel: unsafe fn(&ToPoints),
        pixels: &[*const f32; MAX_PIXELS],
        channels: usize,
        index: usize,
        (layout, points): (Layout, SharedMut),
    ) {
        let plane = layout.plane();
        let len = (self.algorithm.sizes.point_planes() - 1) * plane + layout.width;
        let mut args = ToPoints {
            pixels,
            first: 0,
            channels: 0,
            out: std::ptr::null_mut(),
            plane,
        };
        for block in 0..layout.blocks {
            args.first = block * layout.width;
            args.channels = layout.width.min(channels - args.first);
            args.out = points.at(block * layout.block() + index * layout.width, len);
            // SAFETY: the kernel is of a level of this CPU, pixels and points hold all channels, and no two tiles share
            // points.
            unsafe { kernel(&args) };
        }
    }

    /// Adds up a part's products over tiles.
    fn sum(&self, part: &Part, points: Points, tiles: usize, add: bool, sums: &mut [f32]) {
        for weight in 0..self.weight_planes() {
            let sums = &mut sums[weight * part.plane..][..part.plane];
            let mut add = add;
            for point in self.algorithm.sizes.sharing(weight) {
                for first in (0..tiles).step_by(CHUNK) {
                    let chunk = first..tiles.min(first + CHUNK);
                    self.sum_chunk(part, points, point, chunk, add, sums);
                    add = true;
                }
            }
        }
    }

    /// Adds up a part's products over some tiles at one point.
    fn sum_chunk(
        &self,
        part: &Part,
        points: Points,
        point: usize,
        tiles: Range<usize>,
        add: bool,
        sums: &mut [f32],
    ) {
        let kernels = Kernels::current();
        let at = |which: usize, channel: usize| {
            let layout = points.layouts[which];
            let block = point * layout.plane() + channel / layout.width * layout.block();
            let start = block + tiles.start * layout.width;
            let values = points.values[which].at(start, tiles.len() * layout.width);
            (
                values.wrapping_add(channel % layout.width).cast_const(),
                layout.width,
            )
        };
        let columns = kernels.columns;
        for panel in 0..part.panels {
            for filter in part.filters.clone().step_by(LINE) {
                let rows = LINE.min(part.filters.end - filter);
                let from = panel * part.filters.len() + filter - part.filters.start;
                let (a, a_stride) = at(1, filter);
                let (b, b_stride) = at(0, part.channels.start + panel * columns);
                let args = Reduction {
                    depth: tiles.len(),
                    rows,
                    a,
                    a_stride,
                    b,
                    b_stride,
                    out: sums[from * columns..][..rows * columns].as_mut_ptr(),
                    out_stride: columns,
                    accumulate: add,
                };
                // SAFETY: `current` is a level of this CPU; the operands hold all rows and columns, and nobody writes
                // to points now.
                unsafe { (kernels.reduction)(&args) };
            }
        }
    }

    /// Transforms a part's sums to gradients of its filters.
    fn store(&self, part: &Part, sums: &[f32], dw: SharedMut) {
        let columns = Kernels::current().columns;
        for panel in 0..part.panels {
            let first = part.channels.start + panel * columns;
            let channels = columns.min(part.channels.end - first);
            for (index, filter) in part.filters.clone().enumerate() {
                let from = (panel * part.filters.len() + index) * columns;
                let len = (self.weight_planes() - 1) * part.plane + columns;
                let args = Unpack {
                    sums: sums[from..][..len].as_ptr(),
                    plane: part.plane,
                    filters: channels,
                    out: dw.at((filter * self.channels + first) * TAPS, channels * TAPS),
                };
                // SAFETY: the algorithm is of a level of this CPU; sums and gradients were just checked to hold all channels,
                // and no two parts share gradients.
                unsafe { (self.algorithm.unpack)(&args) };
            }
        }
    }
}
