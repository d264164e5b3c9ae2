//! Copies operands into the order in which the micro-kernels read them.

use super::region::Run;

/// A weight tensor seen as rows (the channels that come out) by channels (those that are summed
/// over) by taps, whatever its order in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct WeightView<'a> {
    pub(super) values: &'a [f32],
    /// Position of row 0, channel 0, tap 0 of group 0.
    pub(super) origin: usize,
    pub(super) group_stride: usize,
    pub(super) row_stride: usize,
    pub(super) channel_stride: usize,
    /// From one tap down, and across, to the next; negative where the kernel is flipped.
    pub(super) tap_strides: [isize; 2],
    /// Taps down and across.
    pub(super) taps: [usize; 2],
}

impl WeightView<'_> {
    /// Position of a term of the sum (counted through channels, rows and columns of the kernel)
    /// for row 0 of a group.
    #[inline(always)]
    pub(super) fn position(&self, group: usize, term: usize) -> usize {
        let taps = self.taps[0] * self.taps[1];
        let (channel, tap) = (term / taps, term % taps);
        let (y, x) = (tap / self.taps[1], tap % self.taps[1]);
        let tap = y as isize * self.tap_strides[0] + x as isize * self.tap_strides[1];
        let start = self.origin + group * self.group_stride + channel * self.channel_stride;
        start.wrapping_add_signed(tap)
    }
}

/// Packs rows `first..first + rows` of a group as `[depth][rows]`.
pub(super) fn weights(
    view: &WeightView<'_>,
    group: usize,
    first: usize,
    rows: usize,
    to: &mut [f32],
) {
    for (term, column) in to.chunks_exact_mut(rows).enumerate() {
        let start = view.position(group, term) + first * view.row_stride;
        for (i, value) in column.iter_mut().enumerate() {
            *value = view.values[start + i * view.row_stride];
        }
    }
}

/// Packs a panel of pixels as `[offsets][COLUMNS]`, zero in columns that no run covers.
#[inline(always)]
pub(super) fn panel<const COLUMNS: usize>(
    source: &[f32],
    runs: &[Run],
    offsets: &[usize],
    panel: &mut [f32],
) {
    let lines = panel.chunks_exact_mut(COLUMNS).zip(offsets);
    if let [run] = runs
        && run.length == COLUMNS
    {
        let source = &source[run.position..];
        for (line, &offset) in lines {
            line.copy_from_slice(&source[offset..offset + COLUMNS]);
        }
        return;
    }
    let covered: usize = runs.iter().map(|run| run.length).sum();
    for (line, &offset) in lines {
        for run in runs {
            let from = &source[run.position + offset..][..run.length];
            copy_short(from, &mut line[run.lane..][..run.length]);
        }
        line[covered..].fill(0.0);
    }
}

/// A copy of few floats, without a call.
#[inline(always)]
fn copy_short(from: &[f32], to: &mut [f32]) {
    let (from_fours, from_rest) = from.as_chunks::<4>();
    let (to_fours, to_rest) = to.as_chunks_mut::<4>();
    for (to, from) in to_fours.iter_mut().zip(from_fours) {
        *to = *from;
    }
    for (to, from) in to_rest.iter_mut().zip(from_rest) {
        *to = *from;
    }
}

/// Packs a run of pixels of up to `columns` planes as `[pixels][columns]`, zero beyond `planes`.
#[inline(always)]
pub(super) fn transposed(
    source: &[f32],
    plane: usize,
    planes: usize,
    columns: usize,
    to: &mut [f32],
) {
    for (pixel, line) in to.chunks_exact_mut(columns).enumerate() {
        for (i, value) in line[..planes].iter_mut().enumerate() {
            *value = source[i * plane + pixel];
        }
        line[planes..].fill(0.0);
    }
}
