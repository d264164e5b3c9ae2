//! Weights in the order that the micro-kernels read: `[correlation][group][panel][tap][channel][column]`.
//!
//! For the forward direction a column's weights are one run of memory, over channels and taps; for the data gradient
//! they are a run of taps for each channel. Runs of eight columns are turned in registers, eight weights at a time.

use super::Direction;
use super::correlation::{Correlations, WeightStrides};
use super::transpose::{SIDE, Square, transpose};
use crate::parallel;
use crate::shared::SharedMut;
use crate::simd::{Isa, dispatch};

/// Channels of a task.
const CHANNELS: usize = 64;

/// Packs all weights of a direction in panels of `panel` columns. Columns that don't exist are zero.
pub(super) fn pack(correlations: &Correlations, panel: usize, w: &[f32], packed: &mut [f32]) {
    let strides = correlations.weight_strides();
    let panels = correlations.columns.div_ceil(panel);
    let blocks = correlations.depth.div_ceil(CHANNELS);
    let to = SharedMut::new(packed);
    let items = correlations.groups * panels * blocks;
    let floats = correlations.depth.min(CHANNELS) * strides.taps * panel;
    parallel::for_each(items, parallel::grain(floats), 0..items, |_, items| {
        for item in items {
            let (matrix, block) = (item / blocks, item % blocks);
            let (group, first) = (matrix / panels, matrix % panels * panel);
            let channel = block * CHANNELS;
            let start = group * strides.group + first * strides.column + channel * strides.channel;
            let part = Part {
                correlations,
                from: &w[start..],
                to,
                strides,
                panel,
                matrices: correlations.groups * panels,
                matrix,
                columns: panel.min(correlations.columns - first),
                channel,
                channels: CHANNELS.min(correlations.depth - channel),
            };
            match correlations.direction {
                Direction::Forward => pack_runs(part),
                Direction::BackwardInput if strides.taps == 1 => copy_rows(part),
                Direction::BackwardInput => pack_taps(part),
            }
        }
    });
}

/// Some channels of a panel.
#[derive(Clone, Copy)]
struct Part<'a> {
    correlations: &'a Correlations,
    /// The weights from the part's first one on.
    from: &'a [f32],
    to: SharedMut<'a>,
    strides: WeightStrides,
    /// Columns of a panel, and those that exist.
    panel: usize,
    columns: usize,
    /// Groups times panels, and the number of this one.
    matrices: usize,
    matrix: usize,
    /// The first channel, and how many.
    channel: usize,
    channels: usize,
}

impl Part<'_> {
    /// Where the part's first row of a tap of the kernel is packed to, or `None` where no pixel needs it.
    fn place(&self, tap: usize) -> Option<usize> {
        let place = self.correlations.place(tap)?;
        let rows = place.before * self.matrices + self.matrix * place.taps + place.tap;
        Some((rows * self.correlations.depth + self.channel) * self.panel)
    }

    /// Eight weights in a row of eight columns, turned: `[weight][column]`.
    #[inline(always)]
    fn square<I: Isa>(&self, start: usize, column: usize) -> Square {
        let stride = self.strides.column;
        let first = start + column * stride;
        let mut square = Square::default();
        if column + SIDE <= self.columns && first + (SIDE - 1) * stride + SIDE <= self.from.len() {
            for (lane, row) in square.iter_mut().enumerate() {
                // SAFETY: the last row's end was just checked.
                *row = unsafe {
                    self.from
                        .as_ptr()
                        .add(first + lane * stride)
                        .cast::<[f32; SIDE]>()
                        .read()
                };
            }
        } else {
            self.edge(first, column, &mut square);
        }
        transpose::<I>(&square)
    }

    /// Rows of a square of which some, or their ends, don't exist.
    #[cold]
    fn edge(&self, first: usize, column: usize, square: &mut Square) {
        for (lane, row) in square
            .iter_mut()
            .enumerate()
            .take(self.columns.saturating_sub(column))
        {
            let from = &self.from[first + lane * self.strides.column..];
            let len = from.len().min(SIDE);
            row[..len].copy_from_slice(&from[..len]);
        }
    }

    #[inline(always)]
    fn store(&self, place: usize, row: [f32; SIDE]) {
        let to = self.to.at(place, SIDE).cast::<[f32; SIDE]>();
        // SAFETY: checked to be inside; no two parts, taps, channels or columns have the same place.
        unsafe { to.write(row) };
    }
}

dispatch! {
    /// Packs weights of which each column's are one run over channels and taps.
    fn pack_runs<I>(part: Part<'_>) -> () {
        let taps = part.strides.taps;
        let tap_size = part.correlations.depth * part.panel;
        let first = part.matrix * taps * tap_size + part.channel * part.panel;
        for column in (0..part.panel).step_by(SIDE) {
            let (mut channel, mut tap) = (0, 0);
            for start in (0..part.channels * taps).step_by(SIDE) {
                let rows = part.square::<I>(start, column);
                for row in rows.into_iter().take(part.channels * taps - start) {
                    part.store(first + tap * tap_size + channel * part.panel + column, row);
                    tap += 1;
                    if tap == taps {
                        (channel, tap) = (channel + 1, 0);
                    }
                }
            }
        }
    }
}

dispatch! {
    /// Packs weights of which each column's are a run of taps for every channel.
    fn pack_taps<I>(part: Part<'_>) -> () {
        let taps = part.strides.taps;
        for tap in (0..taps).step_by(SIDE) {
            let mut places = [None; SIDE];
            for (place, tap) in places.iter_mut().zip(tap..taps) {
                *place = part.place(tap);
            }
            for channel in 0..part.channels {
                for column in (0..part.panel).step_by(SIDE) {
                    let rows = part.square::<I>(channel * part.strides.channel + tap, column);
                    for (row, place) in rows.into_iter().zip(places) {
                        if let Some(place) = place {
                            part.store(place + channel * part.panel + column, row);
                        }
                    }
                }
            }
        }
    }
}

/// Packs a kernel of one tap whose columns are neighbours.
fn copy_rows(part: Part<'_>) {
    let Some(place) = part.place(0) else { return };
    for channel in 0..part.channels {
        let from = &part.from[channel * part.strides.channel..][..part.columns];
        // SAFETY: no two parts or channels have the same place.
        let to = unsafe { part.to.slice(place + channel * part.panel, part.panel) };
        to[..part.columns].copy_from_slice(from);
        to[part.columns..].fill(0.0);
    }
}
