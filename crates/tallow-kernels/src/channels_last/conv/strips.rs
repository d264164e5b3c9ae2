//! Images of few channels, a row of the output at a time.
//!
//! With the padding in place (`padded`) a kernel's row is one run of floats, and the runs of neighbouring pixels lie
//! evenly spaced: a tile needs no table of where its rows lie.

use std::ops::Range;

use super::Finish;
use super::correlation::{Axis, Correlations};
use super::plan::Plan;
use crate::channels_last::int8::{Sink, Sums};
use crate::channels_last::micro::{self, Micro};
use crate::channels_last::strip::Strip;
use crate::parallel;
use crate::shared::SharedMut;
use crate::workspace::Workspace;

/// Multiplications that are worth handing to a thread.
const WORK: usize = 1024 * 1024;
/// Tasks that are enough to keep many threads busy.
const TASKS: usize = 8;

/// A forward pass over padded rows.
pub(super) struct Strips<'a> {
    /// With the taps of a kernel's row merged.
    pub(super) correlations: Correlations,
    pub(super) micro: &'static Micro,
    /// `[images, height, row]`.
    pub(super) source: &'a [f32],
    /// Floats of a padded row, and of a pixel.
    pub(super) row: usize,
    pub(super) pixel: usize,
    pub(super) packed: &'a [f32],
    pub(super) finish: Finish<'a>,
}

/// Computes all of the target.
pub(super) fn run(strips: &Strips<'_>, target: &mut [f32]) {
    let target = SharedMut::new(target);
    strips.tasks(|rows| strips.rows(rows, 0, target));
}

/// As [`run`], of whole numbers, which go to `sink`.
pub(super) fn run_to(strips: &Strips<'_>, sink: &Sink<'_>, workspace: &Workspace) {
    let [_, width] = strips.correlations.target_size;
    let columns = strips.correlations.columns;
    strips.tasks(|rows| {
        let mut sums = workspace.take(rows.len() * width * columns);
        strips.rows(rows.clone(), rows.start, SharedMut::new(&mut sums));
        sink.store(Sums {
            pixels: [rows.start * width, rows.len() * width],
            channels: [0, columns],
            values: &sums,
            stride: columns,
        });
    });
}

impl Strips<'_> {
    /// Calls `f` with the rows of each task.
    fn tasks(&self, f: impl Fn(Range<usize>) + Sync) {
        let correlations = &self.correlations;
        let [height, width] = correlations.target_size;
        let taps = correlations.get(0).axes[0].taps;
        let work = width * correlations.columns * correlations.depth * taps;
        let rows = correlations.images * height;
        let each = WORK.div_ceil(work.max(1)).min(rows.div_ceil(TASKS)).max(1);
        parallel::for_each(rows.div_ceil(each), 1, (), |block, ()| {
            f(Plan::part(block, each, rows));
        });
    }

    /// Rows of the output to a target that begins with row `first`.
    fn rows(&self, rows: Range<usize>, first: usize, target: SharedMut) {
        let down = self.correlations.get(0).axes[0];
        for panel in 0..self.correlations.columns.div_ceil(self.micro.columns) {
            for row in rows.clone() {
                self.row(&down, row, panel, row - first, target);
            }
        }
    }

    /// A panel's columns of a row of the output, to row `to` of the target.
    fn row(&self, down: &Axis, row: usize, panel: usize, to: usize, target: SharedMut) {
        let correlations = &self.correlations;
        let [height, width] = correlations.target_size;
        let (image, y) = (row / height, row % height);
        let taps = live(down, y);
        let first = down.read(y, taps.start).unwrap_or(0);
        let terms = correlations.depth * self.micro.columns;
        let panel_start = panel * down.taps * terms;
        let column = panel * self.micro.columns;
        let columns = self.micro.columns.min(correlations.columns - column);
        let place = to * width * correlations.columns + column;
        let stride = correlations.get(0).axes[1].stride * self.pixel;
        let source = (image * down.source + first) * self.row;
        let step = down.step * self.row;
        let (tap_rows, last) = (taps.len(), (width - 1) * stride + correlations.depth);
        if tap_rows > 0 {
            assert!(source + (tap_rows - 1) * step + last <= self.source.len());
        }
        let weights = &self.packed[panel_start + taps.start * terms..][..tap_rows * terms];
        let residual = self.finish.residual.map_or(std::ptr::null(), |values| {
            values[place..][..(width - 1) * correlations.columns + columns].as_ptr()
        });
        let args = Strip {
            pixels: width,
            taps: tap_rows,
            depth: correlations.depth,
            a: self.source.as_ptr().wrapping_add(source),
            tap_step: step,
            a_stride: stride,
            b: weights.as_ptr(),
            out: target.at(place, (width - 1) * correlations.columns + columns),
            residual,
            out_stride: correlations.columns,
            columns,
            finish: self.finish(column, columns),
        };
        // SAFETY: the level is in force. The source was checked to hold all taps of the row's last pixel, `weights` all
        // of the panel's, and no other task writes to these columns of the row.
        unsafe { (self.micro.strip)(&args) };
    }

    /// What is done to the sums of some columns.
    fn finish(&self, column: usize, columns: usize) -> Option<micro::Finish> {
        let finish = &self.finish;
        if *finish == Finish::default() {
            return None;
        }
        let [low, high] = finish.clamp.unwrap_or([f32::NEG_INFINITY, f32::INFINITY]);
        let bias = finish
            .bias
            .map_or(std::ptr::null(), |bias| bias[column..][..columns].as_ptr());
        Some(micro::Finish {
            bias,
            residual: std::ptr::null(),
            low,
            high,
        })
    }
}

/// The taps of a position that don't read padding.
fn live(axis: &Axis, position: usize) -> Range<usize> {
    let reads = |tap: &usize| axis.read(position, *tap).is_some();
    let first = (0..axis.taps).find(reads).unwrap_or(0);
    let count = (first..axis.taps).take_while(reads).count();
    first..first + count
}
