//! Rows of the source times packed weights: forward and data gradient.
//!
//! A task takes a block of pixels and some panels of weights. It sums block by block: part of a panel that stays in the
//! L1 cache, for all tiles of its pixels, then the next. A tile skips taps under which all of its pixels read padding.

use std::ops::Range;

use super::Finish;
use super::correlation::{Correlation, Correlations};
use super::plan::Plan;
use super::rows::{Order, Pixel, RowTable, Source};
use super::tiles::Tiles;
use crate::channels_last::int8::{Sink, Sums};
use crate::channels_last::micro::{self, Micro, Product};
use crate::parallel;
use crate::shared::SharedMut;
use crate::workspace::{Scratch, Workspace};

/// Floats of packed weights that stay in the L1 cache: with so few, rows of the target are best written in one go.
const FEW_WEIGHTS: usize = 4 * 1024;

/// Floats of a row that is no longer than a cache line.
const SHORT_ROW: usize = 16;

/// A forward pass or a data gradient.
pub(super) struct Pass<'a> {
    pub(super) correlations: Correlations,
    /// The kernels that read what source and packed weights hold.
    pub(super) micro: &'static Micro,
    pub(super) source: Source<'a>,
    pub(super) packed: &'a [f32],
    pub(super) finish: Finish<'a>,
}

/// Computes all of the target.
pub(super) fn run(pass: &Pass<'_>, target: &mut [f32], workspace: &Workspace) {
    if !target.is_empty() {
        tasks(pass, Output::Shared(SharedMut::new(target)), workspace);
    }
}

/// As [`run`], of whole numbers, which go to `sink`.
pub(super) fn run_to(pass: &Pass<'_>, sink: &Sink<'_>, workspace: &Workspace) {
    tasks(pass, Output::Sink(sink), workspace);
}

/// Where a call's tasks bring what they have summed up.
#[derive(Clone, Copy)]
enum Output<'a> {
    /// Each writes to its own part.
    Shared(SharedMut<'a>),
    /// Each sums up in memory of its own.
    Sink(&'a Sink<'a>),
}

fn tasks(pass: &Pass<'_>, output: Output<'_>, workspace: &Workspace) {
    let micro = pass.micro;
    let correlations = &pass.correlations;
    let plan = Plan::new(correlations, pass.source.images_inner, micro);
    let mut zeros = workspace.take(correlations.depth);
    zeros.fill(0.0);
    let call = Call {
        pass,
        micro,
        plan,
        zeros: &zeros,
        output,
        workspace,
    };
    let each = correlations.groups * plan.panel_blocks * plan.pixel_blocks;
    parallel::for_each(correlations.count() * each, 1, (), |item, ()| {
        call.task(item)
    });
}

/// What all tasks of a call share.
struct Call<'a> {
    pass: &'a Pass<'a>,
    micro: &'static Micro,
    plan: Plan,
    zeros: &'a [f32],
    output: Output<'a>,
    workspace: &'a Workspace,
}

impl Call<'_> {
    /// Task number `item`, counted through correlations, groups, blocks of panels and blocks of pixels.
    fn task(&self, item: usize) {
        let plan = &self.plan;
        let correlations = &self.pass.correlations;
        let (item, pixel_block) = (item / plan.pixel_blocks, item % plan.pixel_blocks);
        let (item, panel_block) = (item / plan.panel_blocks, item % plan.panel_blocks);
        let (index, group) = (item / correlations.groups, item % correlations.groups);
        let correlation = correlations.get(index);
        let total = correlation.grid() * correlations.images;
        let pixels = Plan::part(pixel_block, plan.pixels, total);
        let all_panels = correlations.columns.div_ceil(self.micro.columns);
        if pixels.is_empty() {
            return;
        }
        let panels = Plan::part(panel_block, plan.panels, all_panels);
        match self.output {
            Output::Shared(target) => {
                let mut block = Block::new(self, correlation, group, pixels.clone(), target);
                block.fill_targets(pixels.start);
                block.run(panels);
            }
            Output::Sink(sink) => {
                let first = panels.start * self.micro.columns;
                let columns = correlations.columns.min(panels.end * self.micro.columns) - first;
                let mut sums = self.workspace.take(pixels.len() * columns);
                let target = SharedMut::new(&mut sums);
                let mut block = Block::new(self, correlation, group, pixels.clone(), target);
                for (index, target) in block.targets.iter_mut().enumerate() {
                    // Columns are counted from the group's first one.
                    *target = (index * columns).wrapping_sub(first);
                }
                block.run(panels);
                drop(block);
                sink.store(Sums {
                    pixels: [pixels.start, pixels.len()],
                    channels: [group * correlations.columns + first, columns],
                    values: &sums,
                    stride: columns,
                });
            }
        }
    }
}

/// A block of pixels of one correlation and group.
struct Block<'a> {
    call: &'a Call<'a>,
    correlation: Correlation,
    group: usize,
    rows: RowTable<'a>,
    target: SharedMut<'a>,
    /// Where each pixel's channels of the group start in the target, modulo the numbers that there are.
    targets: Scratch<'a, usize>,
    order: Order,
    tiles: Tiles<'a>,
    taps: usize,
    taps_each: usize,
}

impl<'a> Block<'a> {
    fn new(
        call: &'a Call<'a>,
        correlation: Correlation,
        group: usize,
        pixels: Range<usize>,
        target: SharedMut<'a>,
    ) -> Self {
        let correlations = &call.pass.correlations;
        let order = Order {
            grid: [correlation.axes[0].grid, correlation.axes[1].grid],
            images: correlations.images,
            images_inner: call.plan.images_inner,
        };
        let part = [pixels.start, pixels.len()];
        let offset = group * correlations.depth;
        let source = &call.pass.source;
        let rows = RowTable::new(
            &correlation,
            &order,
            part,
            source,
            offset,
            call.zeros,
            call.workspace,
        );
        let taps = correlation.taps();
        let run = if order.images_inner && pixels.len().is_multiple_of(order.images) {
            order.images
        } else {
            pixels.len()
        };
        let tiles = Tiles::new(&rows, taps, run, call.micro.rows, call.workspace);
        Self {
            call,
            correlation,
            group,
            rows,
            target,
            order,
            targets: call.workspace.take_indices(pixels.len()),
            tiles,
            taps,
            taps_each: call.plan.taps(
                taps,
                correlation.axes[1].taps,
                correlations.depth,
                call.micro,
            ),
        }
    }

    /// Sums everything up, for the columns of some panels.
    fn run(&mut self, panels: Range<usize>) {
        for channels in self.channel_parts() {
            for taps in self.tap_parts() {
                self.tiles.select(taps.clone());
                self.add(channels.clone(), taps, panels.clone());
            }
        }
    }

    /// Where pixels from `first` on lie in all of the target.
    fn fill_targets(&mut self, first: usize) {
        let order = self.order;
        let correlations = &self.call.pass.correlations;
        let [height, width] = correlations.target_size;
        let [down, across] = &self.correlation.axes;
        let channels = correlations.columns * correlations.groups;
        let mut pixel = order.pixel(first);
        for target in self.targets.iter_mut() {
            let Pixel { image, y, x } = pixel;
            let row = image * height + y * down.target_step + down.target_first;
            let place = row * width + x * across.target_step + across.target_first;
            *target = place * channels + self.group * correlations.columns;
            pixel = order.next(pixel);
        }
    }

    fn channel_parts(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        parts(self.call.pass.correlations.depth, self.call.plan.channels)
    }

    /// Parts of the taps; one without a tap where there are none.
    fn tap_parts(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        parts(self.taps, self.taps_each)
    }

    /// Adds the terms of some channels of the selected taps to all tiles, for the columns of some panels.
    fn add(&self, channels: Range<usize>, taps: Range<usize>, panels: Range<usize>) {
        let terms = taps.len() * channels.len();
        if terms * panels.len() * self.call.micro.columns <= FEW_WEIGHTS {
            for tile in 0..self.tiles.count {
                self.prefetch(&channels, tile + 1);
                for panel in panels.clone() {
                    self.add_to_tile(&channels, tile, panel);
                }
            }
        } else {
            for panel in panels.clone() {
                for tile in 0..self.tiles.count {
                    if panel == panels.start {
                        self.prefetch(&channels, tile + 1);
                    }
                    self.add_to_tile(&channels, tile, panel);
                }
            }
        }
    }

    /// Asks for the rows that a tile reads, unless they are so short that the tile before has read almost all of them.
    #[inline(always)]
    fn prefetch(&self, channels: &Range<usize>, tile: usize) {
        if tile < self.tiles.count && channels.len() > SHORT_ROW {
            let span = self.tiles.span(tile);
            for tap in span.taps {
                self.rows.prefetch(tap, span.pixels.clone(), channels);
            }
        }
    }

    #[inline(always)]
    fn add_to_tile(&self, channels: &Range<usize>, tile: usize, panel: usize) {
        let depth = self.call.pass.correlations.depth;
        let span = self.tiles.span(tile);
        let step = Step {
            taps: span.taps,
            channels: channels.clone(),
            panel,
            first: span.first && channels.start == 0,
            last: span.last && channels.end == depth,
        };
        if !step.taps.is_empty() || step.first || step.last {
            self.multiply(&step, span.pixels);
        }
    }

    fn multiply(&self, step: &Step, tile: Range<usize>) {
        let micro = self.call.micro;
        let correlations = &self.call.pass.correlations;
        let column = step.panel * micro.columns;
        let columns = micro.columns.min(correlations.columns - column);
        let mut out = [std::ptr::null_mut(); micro::MAX_ROWS];
        for (out, target) in out.iter_mut().zip(&self.targets[tile.clone()]) {
            *out = self.target.at(target.wrapping_add(column), columns);
        }
        let (mut rows, mut rows_stride) =
            (self.rows.at(step.taps.start, tile.start), self.rows.pixels);
        let mut moved = [std::ptr::null(); micro::MAX_ROWS];
        if step.channels.start > 0 && !step.taps.is_empty() {
            for (i, row) in moved[..tile.len()].iter_mut().enumerate() {
                // SAFETY: inside the table; the row has all channels.
                *row = unsafe { (*rows.add(i)).add(step.channels.start) };
            }
            (rows, rows_stride) = (moved.as_ptr(), 0);
        }
        let mut residual = [std::ptr::null(); micro::MAX_ROWS];
        let args = Product {
            taps: step.taps.len(),
            depth: step.channels.len(),
            rows,
            rows_stride,
            b: self.weights(step),
            out: out.as_ptr(),
            columns,
            accumulate: !step.first,
            finish: if step.last {
                self.finish(tile.clone(), column, columns, &mut residual)
            } else {
                None
            },
        };
        // SAFETY: the level is in force. Tables hold rows of `depth` channels for every tap, and where channels are
        // taken in parts there is one tap. Rows of the target were checked, and no other task writes to these columns.
        unsafe { (micro.product)(tile.len(), &args) };
    }

    /// The packed weights of a step.
    fn weights(&self, step: &Step) -> *const f32 {
        let correlations = &self.call.pass.correlations;
        let (depth, width) = (correlations.depth, self.call.micro.columns);
        let panels = correlations.columns.div_ceil(width);
        let before = self.correlation.taps_before * correlations.groups * panels;
        let tap = before + (self.group * panels + step.panel) * self.taps + step.taps.start;
        let start = (tap * depth + step.channels.start) * width;
        let len = step.taps.len() * step.channels.len() * width;
        if len == 0 {
            return std::ptr::null();
        }
        self.call.pass.packed[start..][..len].as_ptr()
    }

    /// What is done to the sums of a tile before their last store.
    fn finish(
        &self,
        tile: Range<usize>,
        column: usize,
        columns: usize,
        residual: &mut [*const f32; micro::MAX_ROWS],
    ) -> Option<micro::Finish> {
        let finish = &self.call.pass.finish;
        if *finish == Finish::default() {
            return None;
        }
        let first = self.group * self.call.pass.correlations.columns + column;
        let [low, high] = finish.clamp.unwrap_or([f32::NEG_INFINITY, f32::INFINITY]);
        let rows = finish.residual.map(|values| {
            for (row, &target) in residual.iter_mut().zip(&self.targets[tile]) {
                *row = values[target + column..][..columns].as_ptr();
            }
            residual.as_ptr()
        });
        Some(micro::Finish {
            bias: finish
                .bias
                .map_or(std::ptr::null(), |bias| bias[first..][..columns].as_ptr()),
            residual: rows.unwrap_or(std::ptr::null()),
            low,
            high,
        })
    }
}

/// Terms that are added to a tile at a time.
struct Step {
    taps: Range<usize>,
    channels: Range<usize>,
    panel: usize,
    /// Nothing was stored before.
    first: bool,
    /// Nothing will be added after.
    last: bool,
}

/// `0..total` in parts of `size`; one empty part where there is nothing.
fn parts(total: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    let count = total.div_ceil(size).max(1);
    (0..count).map(move |index| Plan::part(index, size, total))
}
