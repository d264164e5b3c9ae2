//! The general algorithm: a matrix product whose right-hand matrix is never written out.
//!
//! `out[row, pixel] = sum over (channel, tap) of weight[row, (channel, tap)] * source[channel,
//! pixel moved by tap]`. Weights are packed once a call, in tiles of rows. The pixels of all
//! images are cut into blocks, one task each; a task goes through the sum in slices, copies what
//! the slice needs into a window, packs panels of pixels from it that stay in the L2 cache, and
//! multiplies. Pixels are counted through the batch, so that small images fill panels together.
//!
//! Tasks write different outputs, and how the work is cut follows from the shape and the SIMD
//! level: results don't depend on threads.

use super::micro::{Kernels, MAX_COLUMNS, MAX_ROWS, Product};
use super::pack::{self, WeightView};
use super::region::{Block, Correlation, Cursor, Layout, Pixel, Run};
use crate::parallel;
use crate::shared::SharedMut;
use crate::workspace::Workspace;

/// Where outputs go: row `r` of group `g` at pixel `(y, x)` of an image is
/// `values[origin + image * image_stride + (g * rows + r) * row_stride + y * strides[0] + x *
/// strides[1]]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination<'a> {
    pub(super) values: SharedMut<'a>,
    pub(super) origin: usize,
    pub(super) image_stride: usize,
    pub(super) row_stride: usize,
    pub(super) strides: [usize; 2],
}

impl Destination<'_> {
    pub(super) fn position(&self, row: usize, pixel: Pixel) -> usize {
        self.origin
            + pixel.image * self.image_stride
            + row * self.row_stride
            + pixel.y * self.strides[0]
            + pixel.x * self.strides[1]
    }

    /// Whether neighbouring pixels, through rows of `columns`, are neighbours here.
    pub(super) fn is_dense(&self, columns: usize) -> bool {
        self.strides == [columns, 1]
    }
}

/// Most terms of a slice of the sum; a panel of 16 columns is then 20 KiB.
const SLICE: usize = 320;
/// Pixels of a block.
const BLOCK: usize = 256;
/// Rows that go through all panels of a block before the next ones; with a slice of them packed
/// in the L2 cache.
const ROW_CHUNK: usize = 96;
/// Tasks to aim for, so that any usual number of threads finds about equal shares.
const TASKS: usize = 16;
/// Panels of a block, and rows of a part, at least: fewer would repeat more reading of weights,
/// and packing of pixels, than they share out.
const LEAST_PANELS: usize = 4;
const LEAST_ROWS: usize = 96;

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

/// Runs a correlation with `rows` outputs a group.
pub(super) fn correlate(
    reads: &Correlation<'_>,
    rows: usize,
    weights: &WeightView<'_>,
    bias: Option<&[f32]>,
    writes: &Destination<'_>,
    workspace: &Workspace,
) {
    let depth = reads.depth();
    let kernels = Kernels::current();
    let mut packed = workspace.take(reads.groups * rows * depth);
    pack_weights(weights, kernels, reads.groups, rows, depth, &mut packed);
    let job = Job {
        reads,
        writes,
        kernels,
        rows,
        weights: &packed,
        bias,
        workspace,
        cut: Cut::new(reads, rows, kernels),
    };
    let tasks = reads.groups * job.cut.blocks * job.cut.parts;
    parallel::for_each(tasks, 1, (), |task, ()| job.run(task));
}

fn pack_weights(
    view: &WeightView<'_>,
    kernels: &Kernels,
    groups: usize,
    rows: usize,
    depth: usize,
    packed: &mut [f32],
) {
    let tiles = rows.div_ceil(kernels.rows);
    let packed = SharedMut::new(packed);
    let grain = parallel::grain(kernels.rows * depth);
    parallel::for_each(groups * tiles, grain, (), |task, ()| {
        for task in task..(task + grain).min(groups * tiles) {
            let (group, first) = (task / tiles, task % tiles * kernels.rows);
            let count = kernels.rows.min(rows - first);
            // SAFETY: each tile has its own place in `packed`.
            let to = unsafe { packed.slice((group * rows + first) * depth, count * depth) };
            pack::weights(view, group, first, count, to);
        }
    });
}

/// How a correlation is cut into tasks.
struct Cut {
    /// Pixels of a block, and blocks of a group.
    block: usize,
    blocks: usize,
    /// Parts that the rows are cut into, each of `part` rows.
    parts: usize,
    part: usize,
    /// Terms of a slice, and the most channels that it touches.
    slice: usize,
    channels: usize,
}

impl Cut {
    fn new(reads: &Correlation<'_>, rows: usize, kernels: &Kernels) -> Self {
        let pixels = reads.pixels();
        let (slice, channels) = slices(reads.depth(), reads.taps(), SLICE);
        // A block packs its pixels once for each part of the rows, and each block reads the
        // weights anew: pixels are shared out first, down to blocks of a few panels.
        let wanted = TASKS.div_ceil(reads.groups);
        let least = LEAST_PANELS * kernels.columns;
        let block = pixels.div_ceil(wanted).clamp(least, BLOCK);
        let block = block.next_multiple_of(kernels.columns);
        let blocks = pixels.div_ceil(block);
        let wanted = TASKS.div_ceil(reads.groups * blocks);
        let part = rows.div_ceil(wanted).max(LEAST_ROWS);
        let part = part.next_multiple_of(kernels.rows);
        Self {
            block,
            blocks,
            parts: rows.div_ceil(part),
            part,
            slice,
            channels,
        }
    }
}

struct Job<'a> {
    reads: &'a Correlation<'a>,
    writes: &'a Destination<'a>,
    kernels: &'static Kernels,
    rows: usize,
    weights: &'a [f32],
    bias: Option<&'a [f32]>,
    workspace: &'a Workspace,
    cut: Cut,
}

/// The part of a task that a slice of the sum stands for.
struct Slice<'b> {
    group: usize,
    block: &'b Block,
    /// Rows of the group.
    rows: (usize, usize),
    /// Terms.
    terms: (usize, usize),
}

impl Job<'_> {
    fn run(&self, task: usize) {
        let (cut, reads) = (&self.cut, self.reads);
        let (group, rest) = (
            task / (cut.blocks * cut.parts),
            task % (cut.blocks * cut.parts),
        );
        let (index, part) = (rest / cut.parts, rest % cut.parts);
        let end = ((index + 1) * cut.block).min(reads.pixels());
        let block = reads.block(index * cut.block, end);
        let layout = reads.layout(&block, cut.channels.min(reads.channels));
        let mut window = self.workspace.take(reads.window_len(&block, &layout));
        window.fill(0.0);
        let panels = block.len().div_ceil(self.kernels.columns);
        let mut panels = self
            .workspace
            .take(panels * self.kernels.columns * cut.slice);
        let mut offsets = [0; SLICE];
        for first in (0..reads.depth()).step_by(cut.slice) {
            let terms = (first, (first + cut.slice).min(reads.depth()));
            let channels = (first / reads.taps(), terms.1.div_ceil(reads.taps()));
            let offsets = &mut offsets[..terms.1 - terms.0];
            reads.tap_offsets(terms, channels.0, &layout, offsets);
            let source = reads.window(group, channels, &block, &layout, &mut window);
            self.pack(source, &block, &layout, offsets, &mut panels);
            let rows = (part * cut.part, ((part + 1) * cut.part).min(self.rows));
            self.multiply(
                &Slice {
                    group,
                    block: &block,
                    rows,
                    terms,
                },
                &panels,
            );
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

    /// Adds a slice's terms to the outputs of its block and rows.
    fn multiply(&self, slice: &Slice<'_>, panels: &[f32]) {
        let columns = self.kernels.columns;
        let panel = (slice.terms.1 - slice.terms.0) * columns;
        let block = slice.block;
        let dense = self.writes.is_dense(self.reads.x.grid);
        let mut aside = [0.0; MAX_ROWS * MAX_COLUMNS];
        for first_row in (slice.rows.0..slice.rows.1).step_by(ROW_CHUNK) {
            let end_row = (first_row + ROW_CHUNK).min(slice.rows.1);
            let starts = (block.first..block.end).step_by(columns);
            let mut cursor = self.reads.cursor(block.first);
            for (first, panel) in starts.zip(panels.chunks_exact(panel)) {
                let len = columns.min(block.end - first);
                let row = slice.group * self.rows;
                let runs = Runs::new(&mut cursor, len, dense, |pixel| {
                    self.writes.position(row, pixel)
                });
                for row in (first_row..end_row).step_by(self.kernels.rows) {
                    let rows = (row, self.kernels.rows.min(end_row - row));
                    match runs.as_slice() {
                        [run] if run.length == columns && self.writes.strides[1] == 1 => {
                            self.tile_in_place(slice, rows, run.position, panel);
                        }
                        runs => self.tile_scattered(slice, rows, runs, panel, &mut aside),
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
        let stride = self.writes.row_stride;
        let reach = (count - 1) * stride + self.kernels.columns;
        let c = self.writes.values.at(position + row * stride, reach);
        let channel = slice.group * self.rows + row;
        let start = match self.bias {
            _ if slice.terms.0 > 0 => std::ptr::null(),
            Some(bias) => bias[channel..][..count].as_ptr(),
            None => ZEROS.as_ptr(),
        };
        self.tile(slice, (row, count), panel, (c, stride), start);
    }

    /// A tile that is computed aside and then written run by run.
    fn tile_scattered(
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
        let step = self.writes.strides[1];
        for (i, sums) in aside.chunks_exact(columns).take(count).enumerate() {
            let bias = match self.bias {
                Some(bias) if slice.terms.0 == 0 => bias[slice.group * self.rows + row + i],
                _ => 0.0,
            };
            for run in runs {
                let position = run.position + (row + i) * self.writes.row_stride;
                // SAFETY: this task alone writes these channels of these pixels, as `Cut` deals
                // them out.
                let to = unsafe {
                    self.writes
                        .values
                        .slice(position, (run.length - 1) * step + 1)
                };
                let sums = &sums[run.lane..][..run.length];
                match (slice.terms.0, step) {
                    (0, _) => set(to, step, sums, bias),
                    (_, 1) => to.iter_mut().zip(sums).for_each(|(to, sum)| *to += sum),
                    _ => {
                        for (i, sum) in sums.iter().enumerate() {
                            to[i * step] += sum;
                        }
                    }
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
        let depth = self.reads.depth();
        // Packed tiles start at multiples of the tile's rows, and so does `row`.
        let tile = (slice.group * self.rows + row) * depth;
        let a = &self.weights[tile + slice.terms.0 * count..tile + slice.terms.1 * count];
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

/// Writes sums to every `step`th place.
fn set(to: &mut [f32], step: usize, sums: &[f32], bias: f32) {
    if step == 1 {
        to.iter_mut()
            .zip(sums)
            .for_each(|(to, sum)| *to = bias + sum);
    } else {
        for (i, sum) in sums.iter().enumerate() {
            to[i * step] = bias + sum;
        }
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
