//! Sums of the weight gradient, brought into the order of the weights.

use super::correlation::Correlations;
use crate::parallel;
use crate::shared::SharedMut;
use crate::simd::dispatch;

/// Matrices of sums, `[group, column block, channel block][ranges][taps][channels][width]`.
#[derive(Clone, Copy)]
pub(super) struct Sums<'a> {
    pub(super) parts: &'a [f32],
    /// Matrices to add.
    pub(super) ranges: usize,
    /// Floats of a matrix.
    pub(super) matrix: usize,
    /// Columns of a matrix.
    pub(super) width: usize,
    /// Channels of a matrix.
    pub(super) channels: usize,
    pub(super) total_channels: usize,
    pub(super) total_columns: usize,
}

/// Rows and columns that are transposed at a time.
const SIDE: usize = 8;

/// Writes `dw: [groups * columns][channels][taps]`.
pub(super) fn store(sums: &Sums<'_>, correlations: &Correlations, dw: &mut [f32]) {
    let strips = sums.total_columns.div_ceil(SIDE);
    let channel_blocks = sums.total_channels.div_ceil(sums.channels);
    let dw = SharedMut::new(dw);
    parallel::for_each(
        correlations.groups * strips * channel_blocks,
        1,
        (),
        |item, ()| {
            let (item, channel_block) = (item / channel_blocks, item % channel_blocks);
            let (group, strip) = (item / strips, item % strips);
            let column = strip * SIDE;
            let strip = Strip {
                group,
                column,
                columns: SIDE.min(sums.total_columns - column),
                first_channel: channel_block * sums.channels,
                channel_block,
            };
            store_strip(*sums, strip, dw);
        },
    );
}

/// Eight columns of the channels of a matrix.
#[derive(Clone, Copy)]
struct Strip {
    group: usize,
    column: usize,
    columns: usize,
    first_channel: usize,
    channel_block: usize,
}

dispatch! {
    fn store_strip<I>(sums: Sums<'_>, strip: Strip, dw: SharedMut<'_>) -> () {
        let channels = sums.channels.min(sums.total_channels - strip.first_channel);
        let taps = sums.matrix / sums.channels / sums.width;
        let column_blocks = sums.total_columns.div_ceil(sums.width);
        let channel_blocks = sums.total_channels.div_ceil(sums.channels);
        let block = strip.group * column_blocks + strip.column / sums.width;
        let start = (block * channel_blocks + strip.channel_block) * sums.ranges * sums.matrix;
        let parts = &sums.parts[start..][..sums.ranges * sums.matrix];
        let column = strip.column % sums.width;
        let filter = sums.total_channels * taps;
        let first = (strip.group * sums.total_columns + strip.column) * filter + strip.first_channel * taps;
        let (mut channel, mut tap) = (0, 0);
        for at in (0..channels * taps).step_by(SIDE) {
            let len = SIDE.min(channels * taps - at);
            let mut rows = [[0.0f32; SIDE]; SIDE];
            for row in rows.iter_mut().take(len) {
                let from = (tap * sums.channels + channel) * sums.width + column;
                for part in parts.chunks_exact(sums.matrix) {
                    for (to, value) in row.iter_mut().zip(&part[from..from + SIDE]) {
                        *to += value;
                    }
                }
                tap += 1;
                if tap == taps {
                    (channel, tap) = (channel + 1, 0);
                }
            }
            for column in 0..strip.columns {
                // SAFETY: strips, and blocks of channels, don't overlap.
                let to = unsafe { dw.slice(first + column * filter + at, len) };
                for (to, row) in to.iter_mut().zip(&rows) {
                    *to = row[column];
                }
            }
        }
    }
}
