//! The weight gradient: under each tap, channels of the source times channels of `dy`, summed over pixels.
//!
//! A task takes some channels under all taps, some columns (channels of `dy`) and a range of pixels, and sums into a
//! matrix of its own, `[taps][channels][columns]`, block of pixels by block. Ranges of pixels are as many as give the
//! threads work; `store` adds their matrices in order and brings them into the order of the weights.
//!
//! Where rows hold pairs of bfloat16 (of channels, as the other directions read them), channels are counted one by one all
//! the same, and the micro-kernel pairs pixels: blocks and ranges of pixels are even, and copies of `dy` hold pairs.

use std::ops::Range;

use super::correlation::{Correlation, Correlations};
use super::plan::Plan;
use super::rows::{Order, RowTable, Source};
use super::store::{self, Strip};
use super::transpose::SIDE;
use crate::bf16;
use crate::channels_last::micro::{Micro, Reduction};
use crate::parallel;
use crate::shared::SharedMut;
use crate::workspace::Workspace;

/// Pixels that are summed in one go: a panel of their part of `dy` stays in the L1 cache.
const BLOCK: usize = 256;
/// The same where pixels of padding are skipped, which only a block's ends are.
const SHORT_BLOCK: usize = 128;
/// A row of a panel of AVX2, which is too short for a call of `memcpy`.
type Line = [f32; 16];
/// Columns of a task.
const COLUMNS: usize = 64;
/// Floats of a task's matrix that stay in the L2 cache.
const SUMS: usize = 40 * 1024;
/// Tasks that are enough to keep many threads busy.
const TASKS: usize = 16;
/// Pixels that are worth a matrix of their own.
const FEWEST_PIXELS: usize = 512;

/// A weight gradient.
#[derive(Clone, Copy)]
pub(super) struct Gradient<'a> {
    pub(super) correlations: &'a Correlations,
    pub(super) source: &'a Source<'a>,
    pub(super) dy: &'a [f32],
    /// The kernels that read what the source holds.
    pub(super) micro: &'static Micro,
    /// Channels of a group. Of pairs the source may have one more.
    pub(super) channels: usize,
}

impl Gradient<'_> {
    /// Numbers in a float of the source.
    fn numbers(&self) -> usize {
        if self.micro.pairs { 2 } else { 1 }
    }

    /// Channels of a group at a tap that rows hold; of a kernel's row, if that is one tap.
    fn depth(&self) -> usize {
        self.correlations.depth * self.numbers()
    }
}

/// Computes all of `dw`, which is laid out as the geometry's weights.
pub(super) fn run(gradient: Gradient<'_>, dw: &mut [f32], workspace: &Workspace) {
    let correlations = gradient.correlations;
    let cut = Cut::new(&gradient);
    let mut zeros = workspace.take(correlations.depth);
    zeros.fill(0.0);
    let call = Call {
        gradient,
        correlation: correlations.get(0),
        cut,
        zeros: &zeros,
        workspace,
    };
    let dw = SharedMut::new(dw);
    if cut.ranges == 1 {
        return parallel::for_each(cut.matrices, 1, (), |matrix, ()| {
            let mut sums = workspace.take(cut.matrix);
            call.sum(matrix, 0, &mut sums);
            for strip in 0..cut.columns / SIDE {
                call.store(matrix, strip, &sums, dw);
            }
        });
    }
    let mut sums = workspace.take(cut.matrices * cut.ranges * cut.matrix);
    let items = cut.matrices * cut.ranges;
    let parts = parallel::rows(&mut sums[..], cut.matrix);
    parallel::for_each(items, 1, parts, |item, sums| {
        call.sum(item / cut.ranges, item % cut.ranges, sums.data);
    });
    let strips = cut.columns / SIDE;
    parallel::for_each(cut.matrices * strips, 1, (), |item, ()| {
        let (matrix, strip) = (item / strips, item % strips);
        let len = cut.ranges * cut.matrix;
        call.store(matrix, strip, &sums[matrix * len..][..len], dw);
    });
}

/// How the gradient is cut into tasks.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Channels and columns of a matrix; columns are whole panels.
    channels: usize,
    columns: usize,
    channel_blocks: usize,
    column_blocks: usize,
    /// Floats of a matrix.
    matrix: usize,
    /// Matrices of one range of pixels, counted through groups, blocks of columns and blocks of channels.
    matrices: usize,
    /// Ranges of pixels, and pixels of a range.
    ranges: usize,
    pixels: usize,
}

impl Cut {
    fn new(gradient: &Gradient<'_>) -> Self {
        let (correlations, micro) = (gradient.correlations, gradient.micro);
        let correlation = correlations.get(0);
        let taps = correlation.taps();
        let depth = gradient.depth();
        let all_columns = correlations.columns.next_multiple_of(micro.columns);
        let columns = COLUMNS.next_multiple_of(micro.columns).min(all_columns);
        let most = (SUMS / (taps * columns)).max(1);
        // The taps of a padded row are one tap, which isn't cut.
        let channels = if correlations.merged > 1 {
            depth
        } else {
            depth.div_ceil(depth.div_ceil(most))
        };
        let column_blocks = all_columns.div_ceil(columns);
        let channel_blocks = depth.div_ceil(channels);
        let matrices = correlations.groups * column_blocks * channel_blocks;
        let total = correlation.grid() * correlations.images;
        let wanted = TASKS.div_ceil(matrices).min(total / FEWEST_PIXELS).max(1);
        let pixels = total.div_ceil(wanted).next_multiple_of(BLOCK);
        Self {
            channels,
            columns,
            channel_blocks,
            column_blocks,
            matrix: taps * channels * columns,
            matrices,
            ranges: total.div_ceil(pixels),
            pixels,
        }
    }
}

/// What all tasks of a call share.
struct Call<'a> {
    gradient: Gradient<'a>,
    correlation: Correlation,
    cut: Cut,
    zeros: &'a [f32],
    workspace: &'a Workspace,
}

/// The part of the gradient that a task sums.
struct Part {
    group: usize,
    channels: Range<usize>,
    columns: Range<usize>,
}

impl Call<'_> {
    /// The part of the gradient that a matrix holds.
    fn part(&self, matrix: usize) -> Part {
        let cut = &self.cut;
        let (rest, channels) = (matrix / cut.channel_blocks, matrix % cut.channel_blocks);
        let (group, columns) = (rest / cut.column_blocks, rest % cut.column_blocks);
        Part {
            group,
            channels: Plan::part(channels, cut.channels, self.gradient.depth()),
            columns: Plan::part(columns, cut.columns, self.gradient.correlations.columns),
        }
    }

    /// Sums a matrix over a range of pixels.
    fn sum(&self, matrix: usize, range: usize, sums: &mut [f32]) {
        let part = self.part(matrix);
        let total = self.correlation.grid() * self.gradient.correlations.images;
        let pixels = Plan::part(range, self.cut.pixels, total);
        let len = if self.gradient.source.images_inner {
            SHORT_BLOCK
        } else {
            BLOCK
        };
        let mut gradients = self.workspace.take(BLOCK * self.cut.columns);
        sums.fill(0.0);
        for first in pixels.clone().step_by(len) {
            let block = first..pixels.end.min(first + len);
            if self.gradient.micro.pairs {
                self.copy_pairs(&part, block.clone(), &mut gradients);
            } else {
                self.copy_gradients(&part, block.clone(), &mut gradients);
            }
            self.add_block(&part, block, &gradients, sums);
        }
    }

    /// Adds a matrix's sums over all ranges of pixels, and stores eight of its columns.
    fn store(&self, matrix: usize, strip: usize, sums: &[f32], dw: SharedMut<'_>) {
        let part = self.part(matrix);
        // Taps that were merged are counted as the kernel's again.
        let Gradient {
            correlations,
            channels,
            ..
        } = self.gradient;
        let merged = correlations.merged;
        let taps = self.correlation.taps() * merged;
        let filter = channels * taps;
        let column = strip * SIDE;
        if column >= part.columns.len() {
            return;
        }
        let row = part.group * correlations.columns + part.columns.start + column;
        // Of pairs the last channel may be none.
        let first = part.channels.start / merged;
        let end = (part.channels.end / merged).min(channels);
        let strip = Strip {
            matrices: sums,
            taps,
            all_channels: self.cut.channels / merged,
            channels: end - first.min(end),
            width: self.cut.columns,
            column,
            columns: SIDE.min(part.columns.len() - column),
            first: row * filter + first * taps,
            filter,
        };
        store::store(strip, dw);
    }

    fn order(&self) -> Order {
        Order {
            grid: [self.correlation.axes[0].grid, self.correlation.axes[1].grid],
            images: self.gradient.correlations.images,
            images_inner: self.gradient.source.images_inner,
        }
    }

    /// Copies the task's columns of a block of `dy`, as `[panels][pixels][panel]` with zeros where columns are missing.
    fn copy_gradients(&self, part: &Part, block: Range<usize>, to: &mut [f32]) {
        let width = self.gradient.micro.columns;
        let order = self.order();
        let mut pixel = order.pixel(block.start);
        for i in 0..block.len() {
            let from = self.gradient_row(part, order.place(pixel));
            for (panel, from) in from.chunks(width).enumerate() {
                let to = &mut to[(panel * BLOCK + i) * width..][..width];
                if let (Ok(to), Ok(from)) =
                    (<&mut Line>::try_from(&mut *to), <&Line>::try_from(from))
                {
                    *to = *from;
                } else {
                    to[..from.len()].copy_from_slice(from);
                    to[from.len()..].fill(0.0);
                }
            }
            pixel = order.next(pixel);
        }
    }

    /// As [`Call::copy_gradients`], of pairs of pixels, the last one with zeros where there is no other:
    /// `[panels][pixels / 2][panel]`.
    fn copy_pairs(&self, part: &Part, block: Range<usize>, to: &mut [f32]) {
        let width = self.gradient.micro.columns;
        let order = self.order();
        let mut pixel = order.pixel(block.start);
        for i in (0..block.len()).step_by(2) {
            let first = self.gradient_row(part, order.place(pixel));
            pixel = order.next(pixel);
            let second = (i + 1 < block.len()).then(|| self.gradient_row(part, order.place(pixel)));
            pixel = order.next(pixel);
            for (panel, first) in first.chunks(width).enumerate() {
                let to = &mut to[(panel * BLOCK + i) / 2 * width..][..width];
                let (to, missing) = to.split_at_mut(first.len());
                match second {
                    Some(second) => bf16::pair_two_rows(first, &second[panel * width..], to),
                    None => bf16::pair_with_zeros(first, to),
                }
                missing.fill(0.0);
            }
        }
    }

    /// A task's columns of a pixel of `dy`.
    #[inline(always)]
    fn gradient_row(&self, part: &Part, pixel: usize) -> &[f32] {
        let Gradient {
            correlations, dy, ..
        } = self.gradient;
        let start = (pixel * correlations.groups + part.group) * correlations.columns;
        &dy[start + part.columns.start..][..part.columns.len()]
    }

    /// Adds what a block of pixels contributes.
    fn add_block(&self, part: &Part, block: Range<usize>, gradients: &[f32], sums: &mut [f32]) {
        let pixels = [block.start, block.len()];
        let offset = part.group * self.gradient.correlations.depth;
        let order = self.order();
        let rows = RowTable::new(
            &self.correlation,
            &order,
            pixels,
            self.gradient.source,
            offset,
            self.zeros,
            self.workspace,
        );
        let matrix = self.cut.channels * self.cut.columns;
        for (tap, sums) in sums.chunks_exact_mut(matrix).enumerate() {
            let live = rows.live(tap);
            if !live.is_empty() {
                self.add_tap(part, &rows, tap, live, gradients, sums);
            }
        }
    }

    /// Adds what some pixels contribute under a tap, to `[channels][columns]`.
    fn add_tap(
        &self,
        part: &Part,
        rows: &RowTable<'_>,
        tap: usize,
        pixels: Range<usize>,
        gradients: &[f32],
        sums: &mut [f32],
    ) {
        let (micro, numbers) = (self.gradient.micro, self.gradient.numbers());
        // Whole pairs, unless the block ends with half of one.
        let end = pixels.end.next_multiple_of(numbers).min(rows.pixels);
        let pixels = pixels.start / numbers * numbers..end;
        let floats = part.channels.start / numbers..part.channels.end.div_ceil(numbers);
        let channels = part.channels.len();
        let tiles = channels.div_ceil(micro.rows);
        let panels = part.columns.len().div_ceil(micro.columns);
        // The rows of the next tap are asked for while this one is summed, a few at each tile.
        let next = if tap + 1 < self.correlation.taps() {
            rows.pixels
        } else {
            0
        };
        let share = next.div_ceil(panels * tiles);
        for panel in 0..panels {
            for tile in 0..tiles {
                let ahead = share * (panel * tiles + tile);
                if ahead < next {
                    rows.prefetch(tap + 1, ahead..next.min(ahead + share), &floats);
                }
                let channels = tile * channels / tiles..(tile + 1) * channels / tiles;
                let b = &gradients[(panel * BLOCK + pixels.start) / numbers * micro.columns..];
                let out = &mut sums[channels.start * self.cut.columns..][panel * micro.columns..];
                assert!(b.len() >= pixels.len().div_ceil(numbers) * micro.columns);
                assert!(out.len() >= (channels.len() - 1) * self.cut.columns + micro.columns);
                let args = Reduction {
                    depth: pixels.len(),
                    rows: rows.at(tap, pixels.start),
                    offset: part.channels.start + channels.start,
                    b: b.as_ptr(),
                    b_stride: micro.columns,
                    out: out.as_mut_ptr(),
                    out_stride: self.cut.columns,
                    accumulate: true,
                };
                // SAFETY: the level is in force; the table's rows hold all channels of the group, and the other
                // operands were just checked.
                unsafe { (micro.reduction)(channels.len(), &args) };
            }
        }
    }
}
