//! The gradient with respect to the weight: a sum over all output pixels.
//!
//! `dw[o, (c, tap)] = sum over pixels of dy[o, pixel] * x[c, pixel moved by tap]`. A task takes
//! some output channels, some input channels and some of the pixels; block by block of pixels it
//! packs `dy` as `[pixel][output channel]` and copies a window of `x`, from which the
//! micro-kernel picks single values by offsets: `x` is not packed at all. Where there are too
//! few channels to go round, the pixels are cut into parts as well, whose sums are joined in
//! order; their number follows from the shape alone.

use super::grid::Block;
use super::implicit_gemm::slices;
use super::micro::{Kernels, Reduction};
use super::window::{Correlation, Layout};
use crate::parallel;
use crate::shared::SharedMut;
use crate::workspace::Workspace;

/// Pixels of a block.
const BLOCK: usize = 256;
/// Terms (input channels by taps) of a task, unless one channel has more taps.
const TERMS: usize = 640;
/// Output channels of a task.
const CHANNELS: usize = 64;
/// Tasks to aim for.
const TASKS: usize = 16;

/// Computes `dw` of `rows` output channels a group; `reads` is the forward's correlation.
pub(super) fn weight_gradient(
    reads: &Correlation<'_>,
    rows: usize,
    dy: &[f32],
    dw: &mut [f32],
    workspace: &Workspace,
) {
    let kernels = Kernels::current();
    let cut = Cut::new(reads, rows, kernels);
    let mut sums = workspace.take(cut.tiles(reads) * cut.parts * cut.tile_len(reads));
    let job = Job {
        reads,
        kernels,
        rows,
        dy,
        workspace,
        sums: SharedMut::new(&mut sums),
        dw: SharedMut::new(dw),
        cut,
    };
    let tiles = job.cut.tiles(reads);
    parallel::for_each(tiles * job.cut.parts, 1, (), |task, ()| job.sum(task));
    parallel::for_each(tiles, 1, (), |tile, ()| job.join(tile));
}

/// How the work is cut into tasks: tiles of output channels by input channels, times parts of
/// the pixels.
struct Cut {
    /// Output channels of a tile, a multiple of the micro-kernel's columns, and tiles of them.
    rows: usize,
    row_tiles: usize,
    /// Input channels of a tile, and tiles of them.
    channels: usize,
    channel_tiles: usize,
    /// Parts of the pixels, each of `part` pixels.
    parts: usize,
    part: usize,
}

impl Cut {
    fn new(reads: &Correlation<'_>, rows: usize, kernels: &Kernels) -> Self {
        let row_tiles = rows.div_ceil(CHANNELS);
        let tile_rows = rows.div_ceil(row_tiles).next_multiple_of(kernels.columns);
        let (_, channels) = slices(reads.depth(), reads.taps(), TERMS.max(reads.taps()));
        let channels = channels.min(reads.channels);
        let channel_tiles = reads.channels.div_ceil(channels);
        let tiles = reads.groups * row_tiles * channel_tiles;
        let blocks = reads.pixels().div_ceil(BLOCK);
        let part_blocks = blocks.div_ceil(TASKS.div_ceil(tiles));
        let part = part_blocks * BLOCK;
        Self {
            rows: tile_rows,
            row_tiles,
            channels,
            channel_tiles,
            parts: reads.pixels().div_ceil(part),
            part,
        }
    }

    fn tiles(&self, reads: &Correlation<'_>) -> usize {
        reads.groups * self.row_tiles * self.channel_tiles
    }

    /// Floats of a tile's sums, `[rows / columns][channels * taps][columns]`.
    fn tile_len(&self, reads: &Correlation<'_>) -> usize {
        self.rows * self.channels * reads.taps()
    }
}

struct Job<'a> {
    reads: &'a Correlation<'a>,
    kernels: &'static Kernels,
    rows: usize,
    dy: &'a [f32],
    workspace: &'a Workspace,
    /// `[tiles][parts][tile_len]`.
    sums: SharedMut<'a>,
    dw: SharedMut<'a>,
    cut: Cut,
}

/// The channels of a tile.
struct Tile {
    group: usize,
    /// Output channels, counted within the group.
    rows: (usize, usize),
    /// Input channels, counted within the group.
    channels: (usize, usize),
}

impl Job<'_> {
    fn tile(&self, index: usize) -> Tile {
        let cut = &self.cut;
        let (rest, channel_tile) = (index / cut.channel_tiles, index % cut.channel_tiles);
        let (group, row_tile) = (rest / cut.row_tiles, rest % cut.row_tiles);
        let (row, channel) = (row_tile * cut.rows, channel_tile * cut.channels);
        Tile {
            group,
            rows: (row, (row + cut.rows).min(self.rows)),
            channels: (channel, (channel + cut.channels).min(self.reads.channels)),
        }
    }

    /// Sums up one part of the pixels for one tile.
    fn sum(&self, task: usize) {
        let (tile, part) = (self.tile(task / self.cut.parts), task % self.cut.parts);
        let len = self.cut.tile_len(self.reads);
        // SAFETY: each task has its own sums.
        let sums = unsafe { self.sums.slice(task * len, len) };
        sums.fill(0.0);
        let first = part * self.cut.part;
        let end = (first + self.cut.part).min(self.reads.pixels());
        let mut packed = self.workspace.take(self.cut.rows * BLOCK);
        let mut offsets = self
            .workspace
            .take_indices(self.cut.channels * self.reads.taps());
        for first in (first..end).step_by(BLOCK) {
            let block = self.reads.block(first, (first + BLOCK).min(end));
            self.pack(&tile, &block, &mut packed);
            self.add_block(&tile, &block, &packed, &mut offsets, sums);
        }
    }

    /// Packs the tile's channels of `dy` as `[panels][pixels][columns]`.
    fn pack(&self, tile: &Tile, block: &Block, packed: &mut [f32]) {
        let columns = self.kernels.columns;
        let grid = self.reads.grid();
        let channels = self.reads.groups * self.rows;
        let panels = packed.chunks_exact_mut(block.len() * columns);
        for (row, panel) in (tile.rows.0..tile.rows.1).step_by(columns).zip(panels) {
            let count = columns.min(tile.rows.1 - row);
            let channel = tile.group * self.rows + row;
            let mut cursor = self.reads.cursor(block.first);
            cursor.runs(block.len(), true, |first, pixel, length| {
                let at = pixel.y * self.reads.x.grid + pixel.x;
                let from = &self.dy[(pixel.image * channels + channel) * grid + at..];
                let to = &mut panel[first * columns..][..length * columns];
                // SAFETY: the table holds kernels that this CPU can run.
                unsafe { (self.kernels.pack_transposed)(from, grid, count, to) };
            });
        }
    }

    fn add_block(
        &self,
        tile: &Tile,
        block: &Block,
        packed: &[f32],
        offsets: &mut [usize],
        sums: &mut [f32],
    ) {
        let (reads, columns) = (self.reads, self.kernels.columns);
        let layout = reads.layout(block, tile.channels.1 - tile.channels.0);
        let mut scratch = self.workspace.take(reads.window_len(block, &layout));
        scratch.fill(0.0);
        let source = reads.window(tile.group, tile.channels, block, &layout, &mut scratch);
        let taps = reads.taps();
        let terms = (tile.channels.0 * taps, tile.channels.1 * taps);
        let offsets = &mut offsets[..terms.1 - terms.0];
        reads.tap_offsets(terms, tile.channels.0, &layout, offsets);
        let pixels = self.pixel_offsets(block, &layout);
        let pixels = &pixels[..block.len()];
        let reach = offsets.iter().max().zip(pixels.iter().max());
        assert!(reach.is_some_and(|(tap, pixel)| tap + pixel < source.len()));
        let panels = (tile.rows.1 - tile.rows.0).div_ceil(columns);
        let panels = packed.chunks_exact(block.len() * columns).take(panels);
        let sums = sums.chunks_exact_mut(self.cut.channels * taps * columns);
        for (b, sums) in panels.zip(sums) {
            let tiles = sums.chunks_mut(self.kernels.rows * columns);
            for (taps, c) in offsets.chunks(self.kernels.rows).zip(tiles) {
                assert!(c.len() >= taps.len() * columns);
                let reduction = Reduction {
                    depth: pixels.len(),
                    source: source.as_ptr(),
                    taps: taps.as_ptr(),
                    pixels: pixels.as_ptr(),
                    b: b.as_ptr(),
                    c: c.as_mut_ptr(),
                };
                // SAFETY: the largest offsets were just seen to lie in the source; `b` holds all
                // pixels and `c` all taps of the tile; the table's kernels run on this CPU.
                unsafe { (self.kernels.reduction)(taps.len(), &reduction) };
            }
        }
    }

    /// Offsets of a block's pixels into its window.
    fn pixel_offsets(&self, block: &Block, layout: &Layout) -> [usize; BLOCK] {
        let mut offsets = [0; BLOCK];
        let mut cursor = self.reads.cursor(block.first);
        cursor.runs(block.len(), layout.across_rows, |first, pixel, length| {
            let position = layout.position(block, pixel);
            for (i, offset) in offsets[first..first + length].iter_mut().enumerate() {
                *offset = position + i;
            }
        });
        offsets
    }

    /// Joins the parts of a tile and writes it to `dw`.
    fn join(&self, index: usize) {
        let tile = self.tile(index);
        let (len, taps) = (self.cut.tile_len(self.reads), self.reads.taps());
        let columns = self.kernels.columns;
        // SAFETY: each tile has its own sums, and every task that filled them has ended.
        let sums = unsafe {
            self.sums
                .slice(index * self.cut.parts * len, self.cut.parts * len)
        };
        let (total, parts) = sums.split_at_mut(len);
        for part in parts.chunks_exact(len) {
            for (total, value) in total.iter_mut().zip(part) {
                *total += value;
            }
        }
        let terms = (tile.channels.1 - tile.channels.0) * taps;
        for row in tile.rows.0..tile.rows.1 {
            let at = (tile.group * self.rows + row) * self.reads.depth();
            // SAFETY: tiles don't share elements of `dw`.
            let to = unsafe { self.dw.slice(at + tile.channels.0 * taps, terms) };
            let (panel, lane) = ((row - tile.rows.0) / columns, (row - tile.rows.0) % columns);
            let from = &total[panel * self.cut.channels * taps * columns..];
            for (to, from) in to.iter_mut().zip(from.chunks_exact(columns)) {
                *to = from[lane];
            }
        }
    }
}
