//! The algorithm for few outputs a group, depthwise convolution above all.
//!
//! A matrix product gains by using each packed value for many rows; with one or a few rows the
//! packing costs more than the multiplications. Here the taps are read straight from a window,
//! along its lines from the first pixel to the last, so that even narrow images fill registers:
//! what is computed between two grid rows is dropped.

use super::correlate::{Destination, Part};
use super::grid::Block;
use super::implicit_gemm::slices;
use super::micro::{DOT_ROWS, Kernels, MAX_LANES, RowDots, RowSum};
use super::pack::WeightView;
use super::window::{Correlation, Layout};
use crate::parallel;
use crate::workspace::Workspace;

/// Most outputs a group that are computed this way.
const MOST_ROWS: usize = 4;
/// Most terms of a sum that are taken at a time.
const SLICE: usize = 256;
/// Pixels of a block.
const BLOCK: usize = 2048;

/// Whether this is the algorithm for a correlation with `rows` outputs a group and so many taps.
/// With a single tap, a window of many channels would be copied to be read once.
pub(super) fn suits(rows: usize, groups: usize, taps: usize) -> bool {
    rows <= MOST_ROWS && (groups > 1 || taps > 1)
}

/// Whether this is the algorithm for the weight gradient of `rows` outputs a group. Its tasks are
/// output channels, each of which copies its windows anew, so it wants many small groups.
pub(super) fn suits_weight_gradient(rows: usize, groups: usize) -> bool {
    rows <= MOST_ROWS && groups > 1
}

/// A correlation of one group of channels.
pub(super) struct Sum<'a> {
    pub(super) reads: &'a Correlation<'a>,
    pub(super) weights: &'a WeightView<'a>,
    /// The group's biases.
    pub(super) bias: Option<&'a [f32]>,
    pub(super) kernels: &'static Kernels,
    pub(super) workspace: &'a Workspace,
}

impl Sum<'_> {
    /// Computes a part of the outputs, all terms.
    pub(super) fn run(&self, part: &Part<'_>, writes: &Destination<'_>) {
        let (reads, block) = (self.reads, part.block);
        let (slice, channels) = slices(reads.depth(), reads.taps(), SLICE);
        let layout = reads.scratch_layout(block, channels.min(reads.channels));
        let mut window = self.workspace.take(reads.scratch_len(block, &layout));
        window.fill(0.0);
        let line = layout.flat_len(block).next_multiple_of(MAX_LANES);
        let row_len = block.images * line;
        let mut sums = self.workspace.take((part.rows.1 - part.rows.0) * row_len);
        let mut offsets = [0; SLICE];
        for first in (0..reads.depth()).step_by(slice) {
            let terms = (first, (first + slice).min(reads.depth()));
            let channels = (first / reads.taps(), terms.1.div_ceil(reads.taps()));
            let offsets = &mut offsets[..terms.1 - terms.0];
            reads.tap_offsets(terms, channels.0, &layout, offsets);
            reads.fill_window(part.group, channels, block, &layout, &mut window);
            for (row, sums) in (part.rows.0..).zip(sums.chunks_exact_mut(row_len)) {
                let weights = self.row_weights(part.group, row, terms);
                let weights = &weights[..offsets.len()];
                for (image, sums) in sums.chunks_exact_mut(line).enumerate() {
                    let source = &window[image * layout.image..];
                    self.add_terms(block, &layout, (source, offsets, weights), first > 0, sums);
                }
            }
        }
        for (row, sums) in (part.rows.0..).zip(sums.chunks_exact(row_len)) {
            let bias = self.bias.map_or(0.0, |bias| bias[row]);
            let mut cursor = reads.cursor(block.first);
            cursor.runs(block.len(), false, |_, pixel, length| {
                let from = &sums[layout.flat_position(block, line, pixel)..][..length];
                let at = writes.position(pixel).wrapping_add(row * writes.row_stride);
                // SAFETY: this task alone writes these rows of these pixels.
                let to = unsafe { writes.values.slice(at, length) };
                to.iter_mut()
                    .zip(from)
                    .for_each(|(to, sum)| *to = bias + sum);
            });
        }
    }

    fn row_weights(&self, group: usize, row: usize, terms: (usize, usize)) -> [f32; SLICE] {
        let mut weights = [0.0; SLICE];
        for (term, weight) in (terms.0..terms.1).zip(&mut weights) {
            let position = self.weights.position(group, term) + row * self.weights.row_stride;
            *weight = self.weights.values[position];
        }
        weights
    }

    /// Adds terms to the sums of one image.
    fn add_terms(
        &self,
        block: &Block,
        layout: &Layout,
        (source, offsets, weights): (&[f32], &[usize], &[f32]),
        accumulate: bool,
        sums: &mut [f32],
    ) {
        let reach = offsets.iter().max().copied().unwrap_or(0) + sums.len();
        assert!(reach <= source.len() && offsets.len() == weights.len());
        let row_sum = RowSum {
            len: layout.flat_len(block),
            depth: offsets.len(),
            source: source.as_ptr(),
            taps: offsets.as_ptr(),
            weights: weights.as_ptr(),
            out: sums.as_mut_ptr(),
            accumulate,
        };
        // SAFETY: `sums` holds the length rounded up to `MAX_LANES`, and the furthest tap that
        // many floats of the source; the table's kernels run on this CPU.
        unsafe { (self.kernels.row_sum)(&row_sum) };
    }
}

/// Computes `dw` of `rows` output channels a group; `reads` is the forward's correlation.
///
/// A task takes one output channel through the whole batch, in order.
pub(super) fn weight_gradient(
    reads: &Correlation<'_>,
    rows: usize,
    dy: &[f32],
    dw: &mut [f32],
    workspace: &Workspace,
) {
    let kernels = Kernels::current();
    let depth = reads.depth();
    let outputs = parallel::rows(dw, depth);
    parallel::for_each(reads.groups * rows, 1, outputs, |channel, dw| {
        dw.data.fill(0.0);
        for first in (0..reads.pixels()).step_by(BLOCK) {
            let block = reads.block(first, (first + BLOCK).min(reads.pixels()));
            let task = Gradient {
                reads,
                kernels,
                workspace,
                block: &block,
                channel,
                rows,
            };
            task.add_block(dy, dw.data);
        }
    });
}

struct Gradient<'a> {
    reads: &'a Correlation<'a>,
    kernels: &'static Kernels,
    workspace: &'a Workspace,
    block: &'a Block,
    /// Output channel, and how many of them a group has.
    channel: usize,
    rows: usize,
}

impl Gradient<'_> {
    fn add_block(&self, dy: &[f32], dw: &mut [f32]) {
        let (reads, block) = (self.reads, self.block);
        let (slice, channels) = slices(reads.depth(), reads.taps(), SLICE);
        let layout = reads.scratch_layout(block, channels.min(reads.channels));
        let mut window = self.workspace.take(reads.scratch_len(block, &layout));
        window.fill(0.0);
        let line = layout.flat_len(block).next_multiple_of(MAX_LANES);
        let mut values = self.workspace.take(block.images * line);
        self.spread(dy, &layout, line, &mut values);
        let mut offsets = [0; SLICE];
        for first in (0..reads.depth()).step_by(slice) {
            let terms = (first, (first + slice).min(reads.depth()));
            let channels = (first / reads.taps(), terms.1.div_ceil(reads.taps()));
            let offsets = &mut offsets[..terms.1 - terms.0];
            reads.tap_offsets(terms, channels.0, &layout, offsets);
            let group = self.channel / self.rows;
            reads.fill_window(group, channels, block, &layout, &mut window);
            for (image, values) in values.chunks_exact(line).enumerate() {
                let source = &window[image * layout.image..];
                self.add_dots(values, source, offsets, &mut dw[terms.0..terms.1]);
            }
        }
    }

    /// Writes the block's pixels of `dy` on the lines of a window, zeros between them.
    fn spread(&self, dy: &[f32], layout: &Layout, line: usize, values: &mut [f32]) {
        let (reads, block) = (self.reads, self.block);
        let channels = reads.groups * self.rows;
        values.fill(0.0);
        let mut cursor = reads.cursor(block.first);
        cursor.runs(block.len(), false, |_, pixel, length| {
            let plane = (pixel.image * channels + self.channel) * reads.grid();
            let from = &dy[plane + pixel.y * reads.x.grid + pixel.x..][..length];
            values[layout.flat_position(block, line, pixel)..][..length].copy_from_slice(from);
        });
    }

    fn add_dots(&self, values: &[f32], source: &[f32], offsets: &[usize], dw: &mut [f32]) {
        let reach = offsets.iter().max().copied().unwrap_or(0) + values.len();
        assert!(reach <= source.len() && values.len().is_multiple_of(MAX_LANES));
        for (taps, dw) in offsets.chunks(DOT_ROWS).zip(dw.chunks_mut(DOT_ROWS)) {
            let mut sums = [0.0; DOT_ROWS];
            let dots = RowDots {
                len: values.len(),
                values: values.as_ptr(),
                source: source.as_ptr(),
                taps: taps.as_ptr(),
                sums: sums.as_mut_ptr(),
            };
            // SAFETY: the furthest tap was just seen to have that many floats of the source;
            // `sums` holds `DOT_ROWS`; the table's kernels run on this CPU.
            unsafe { (self.kernels.row_dots)(taps.len(), &dots) };
            for (dw, sum) in dw.iter_mut().zip(sums) {
                *dw += sum;
            }
        }
    }
}
