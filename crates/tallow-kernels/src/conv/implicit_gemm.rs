//! The general algorithm: a matrix product whose right-hand matrix is never written out.
//!
//! `out[row, pixel] = sum over (channel, tap) of weight[row, (channel, tap)] * source[channel,
//! pixel moved by tap]`. Weights are packed once a call, in tiles of rows. For a block of pixels
//! the sum is taken in slices: what a slice needs is copied into a window, panels of pixels that
//! stay in the L2 cache are packed from it, and multiplied by the weights.

use super::correlate::{self, Destination, Outputs, Part, Phase};
use super::grid::{Block, Cursor, Pixel, Run};
use super::micro::{Kernels, MAX_COLUMNS, MAX_ROWS, Product};
use super::pack::{self, WeightView};
use super::window::{Correlation, Layout};
use crate::parallel;
use crate::shared::SharedMut;
use crate::workspace::{Scratch, Workspace};

/// Most terms of a slice of the sum; a panel of 16 columns is then 20 KiB.
const SLICE: usize = 320;
/// Rows that go through all panels of a block before the next ones; with a slice of them packed
/// in the L2 cache.
const ROW_CHUNK: usize = 96;
/// How the terms of a sum are cut into slices: (terms of a slice, most channels of a slice).
pub(super) fn slices(depth: usize, taps: usize, most: usize) -> (usize, usize) {
    let even = depth.div_ceil(depth.div_ceil(most));
    let whole = even.next_multiple_of(taps);
    if whole <= most {
        (whole, whole / taps)
    } else if taps <= most {
        let channels = even / taps;
        (channels.max(1) * taps, channels.max(1))
    } else {
        (even, even.div_ceil(taps) + 1)
    }
}

/// The weights of all phases, each `[groups][tiles][depth][rows of the tile]`.
pub(super) fn pack<'w, 'a>(
    outputs: &Outputs,
    phase: impl Fn([usize; 2]) -> Option<Phase<'a>>,
    kernels: &Kernels,
    workspace: &'w Workspace,
) -> Scratch<'w> {
    let rows = outputs.groups * outputs.rows;
    let present = || correlate::phases(outputs).filter_map(&phase);
    let len: usize = present().map(|phase| rows * phase.reads.depth()).sum();
    let mut packed = workspace.take(len);
    let mut rest = &mut packed[..];
    for phase in present() {
        let depth = phase.reads.depth();
        let (to, after) = rest.split_at_mut(rows * depth);
        pack_weights(&phase.weights, kernels, outputs, depth, to);
        rest = after;
    }
    packed
}

/// Packs the weights of one phase.
///
/// A task takes one tile through all channels where a row's channels lie together, and some
/// channels through all tiles where a channel's rows do, so that it reads memory in order.
fn pack_weights(
    view: &WeightView<'_>,
    kernels: &Kernels,
    outputs: &Outputs,
    depth: usize,
    packed: &mut [f32],
) {
    let (groups, rows) = (outputs.groups, outputs.rows);
    let taps = view.taps[0] * view.taps[1];
    let channels = depth / taps;
    let tiles = rows.div_ceil(kernels.rows);
    let packed = SharedMut::new(packed);
    let pack = |group: usize, tile: usize, channel: usize| {
        let first = tile * kernels.rows;
        let count = kernels.rows.min(rows - first);
        let at = (group * rows + first) * depth + channel * taps * count;
        // SAFETY: each channel of each tile has its own place in `packed`.
        let to = unsafe { packed.slice(at, taps * count) };
        let start = view.position(group, channel * taps) + first * view.row_stride;
        pack::weights(view, start, count, to);
    };
    let (outer, inner) = if view.row_stride < view.channel_stride {
        (channels, tiles)
    } else {
        (tiles, channels)
    };
    let grain = parallel::grain(inner * taps * kernels.rows);
    parallel::for_each(groups * outer, grain, (), |first, ()| {
        for task in first..(first + grain).min(groups * outer) {
            let (group, task) = (task / outer, task % outer);
            for other in 0..inner {
                if view.row_stride < view.channel_stride {
                    pack(group, other, task);
                } else {
                    pack(group, task, other);
                }
            }
        }
    });
}

/// A correlation of one group of channels.
pub(super) struct Sum<'a> {
    pub(super) reads: &'a Correlation<'a>,
    /// The group's packed weights.
    pub(super) weights: &'a [f32],
    /// The group's biases.
    pub(super) bias: Option<&'a [f32]>,
    pub(super) kernels: &'static Kernels,
    pub(super) workspace: &'a Workspace,
}

/// A slice of the sums of a part.
struct Slice<'b> {
    part: &'b Part<'b>,
    writes: &'b Destination<'b>,
    /// Terms.
    terms: (usize, usize),
}

impl Sum<'_> {
    /// Computes a part of the outputs, all terms.
    pub(super) fn run(&self, part: &Part<'_>, writes: &Destination<'_>) {
        let (reads, block) = (self.reads, part.block);
        let (slice, channels) = slices(reads.depth(), reads.taps(), SLICE);
        let layout = reads.layout(block, channels.min(reads.channels));
        let mut window = self.workspace.take(reads.window_len(block, &layout));
        window.fill(0.0);
        let columns = block.len().next_multiple_of(self.kernels.columns);
        let mut panels = self.workspace.take(columns * slice);
        let mut offsets = [0; SLICE];
        for first in (0..reads.depth()).step_by(slice) {
            let terms = (first, (first + slice).min(reads.depth()));
            let channels = (first / reads.taps(), terms.1.div_ceil(reads.taps()));
            let offsets = &mut offsets[..terms.1 - terms.0];
            reads.tap_offsets(terms, channels.0, &layout, offsets);
            let source = reads.window(part.group, channels, block, &layout, &mut window);
            self.pack(source, block, &layout, offsets, &mut panels);
            let slice = Slice {
                part,
                writes,
                terms,
            };
            self.multiply(&slice, &panels);
        }
    }

    /// Packs the panels of a block, each `[offsets][columns]`.
    fn pack(
        &self,
        source: &[f32],
        block: &Block,
        layout: &Layout,
        offsets: &[usize],
        panels: &mut [f32],
    ) {
        let columns = self.kernels.columns;
        let panels = panels.chunks_exact_mut(offsets.len() * columns);
        let mut cursor = self.reads.cursor(block.first);
        for (first, panel) in (block.first..block.end).step_by(columns).zip(panels) {
            let len = columns.min(block.end - first);
            let runs = Runs::new(&mut cursor, len, layout.across_rows, |pixel| {
                layout.position(block, pixel)
            });
            // SAFETY: the table holds kernels that this CPU can run.
            unsafe { (self.kernels.pack_panel)(source, runs.as_slice(), offsets, panel) };
        }
    }

    /// Adds a slice's terms to the outputs of its part.
    fn multiply(&self, slice: &Slice<'_>, panels: &[f32]) {
        let columns = self.kernels.columns;
        let panel = (slice.terms.1 - slice.terms.0) * columns;
        let (block, rows) = (slice.part.block, slice.part.rows);
        let dense = slice.writes.is_dense(self.reads.x.grid);
        let mut aside = [0.0; MAX_ROWS * MAX_COLUMNS];
        for first_row in (rows.0..rows.1).step_by(ROW_CHUNK) {
            let end_row = (first_row + ROW_CHUNK).min(rows.1);
            let starts = (block.first..block.end).step_by(columns);
            let mut cursor = self.reads.cursor(block.first);
            for (first, panel) in starts.zip(panels.chunks_exact(panel)) {
                let len = columns.min(block.end - first);
                let runs = Runs::new(&mut cursor, len, dense, |pixel| {
                    slice.writes.position(pixel)
                });
                for row in (first_row..end_row).step_by(self.kernels.rows) {
                    let rows = (row, self.kernels.rows.min(end_row - row));
                    match runs.as_slice() {
                        [run] if run.length == columns => {
                            self.tile_in_place(slice, rows, run.position, panel);
                        }
                        runs => self.tile_in_runs(slice, rows, runs, panel, &mut aside),
                    }
                }
            }
        }
    }

    /// A tile whose pixels are neighbours in the output, from `position` on in row 0.
    fn tile_in_place(
        &self,
        slice: &Slice<'_>,
        (row, count): (usize, usize),
        position: usize,
        panel: &[f32],
    ) {
        let stride = slice.writes.row_stride;
        let reach = (count - 1) * stride + self.kernels.columns;
        let at = position.wrapping_add(row * stride);
        let c = slice.writes.values.at(at, reach);
        let start = match self.bias {
            _ if slice.terms.0 > 0 => std::ptr::null(),
            Some(bias) => bias[row..][..count].as_ptr(),
            None => ZEROS.as_ptr(),
        };
        self.tile(slice, (row, count), panel, (c, stride), start);
    }

    /// A tile that is computed aside and then written run by run.
    fn tile_in_runs(
        &self,
        slice: &Slice<'_>,
        (row, count): (usize, usize),
        runs: &[Run],
        panel: &[f32],
        aside: &mut [f32],
    ) {
        let columns = self.kernels.columns;
        let c = (aside.as_mut_ptr(), columns);
        self.tile(slice, (row, count), panel, c, ZEROS.as_ptr());
        for (row, sums) in (row..row + count).zip(aside.chunks_exact(columns)) {
            for run in runs {
                let at = run.position.wrapping_add(row * slice.writes.row_stride);
                // SAFETY: this task alone writes these rows of these pixels.
                let to = unsafe { slice.writes.values.slice(at, run.length) };
                let sums = &sums[run.lane..][..run.length];
                if slice.terms.0 > 0 {
                    to.iter_mut().zip(sums).for_each(|(to, sum)| *to += sum);
                } else {
                    let bias = self.bias.map_or(0.0, |bias| bias[row]);
                    to.iter_mut()
                        .zip(sums)
                        .for_each(|(to, sum)| *to = bias + sum);
                }
            }
        }
    }

    fn tile(
        &self,
        slice: &Slice<'_>,
        (row, count): (usize, usize),
        panel: &[f32],
        (c, c_stride): (*mut f32, usize),
        start: *const f32,
    ) {
        // Packed tiles start at multiples of the tile's rows, and so does `row`.
        let tile = &self.weights[row * self.reads.depth()..];
        let a = &tile[slice.terms.0 * count..slice.terms.1 * count];
        let terms = slice.terms.1 - slice.terms.0;
        assert!(panel.len() == terms * self.kernels.columns);
        let product = Product {
            depth: terms,
            a: a.as_ptr(),
            b: panel.as_ptr(),
            c,
            c_stride,
            start,
        };
        // SAFETY: `a` and the panel were just seen to hold the tile's terms; the callers' `c`
        // holds `count` rows of `columns`, which this task alone writes; the table's kernels
        // run on this CPU.
        unsafe { (self.kernels.product)(count, &product) };
    }
}

/// What a tile's sums start from where there is no bias.
static ZEROS: [f32; MAX_ROWS] = [0.0; MAX_ROWS];

/// The runs of neighbours that the pixels of a panel fall into.
struct Runs {
    runs: [Run; MAX_COLUMNS],
    count: usize,
}

impl Runs {
    fn new(
        cursor: &mut Cursor,
        len: usize,
        across_rows: bool,
        position: impl Fn(Pixel) -> usize,
    ) -> Self {
        let mut runs = [Run::default(); MAX_COLUMNS];
        let mut count = 0;
        cursor.runs(len, across_rows, |lane, pixel, length| {
            let position = position(pixel);
            runs[count] = Run {
                lane,
                length,
                position,
            };
            count += 1;
        });
        Self { runs, count }
    }

    fn as_slice(&self) -> &[Run] {
        &self.runs[..self.count]
    }
}
