//! Copies operands into the order in which the micro-kernels read them.

use super::micro::MAX_LANES;
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
    let [taps_y, taps_x] = view.taps;
    let taps = taps_y * taps_x;
    let start = view.position(group, 0) + first * view.row_stride;
    // Chunks of channels, so that what one tap leaves in the cache serves the next.
    for (chunk, to) in to.chunks_mut(CHANNEL_CHUNK * taps * rows).enumerate() {
        let start = start + chunk * CHANNEL_CHUNK * view.channel_stride;
        for tap in 0..taps {
            let (y, x) = ((tap / taps_x) as isize, (tap % taps_x) as isize);
            let offset = y * view.tap_strides[0] + x * view.tap_strides[1];
            let mut at = start.wrapping_add_signed(offset);
            let columns = to[tap * rows..].chunks_mut(rows).step_by(taps);
            for column in columns {
                let from = &view.values[at..];
                for (row, value) in column.iter_mut().enumerate() {
                    *value = from[row * view.row_stride];
                }
                at += view.channel_stride;
            }
        }
    }
}

/// Channels whose weights are packed tap by tap.
const CHANNEL_CHUNK: usize = 64;

/// Lines to copy from a plane into a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines {
    /// From one line to the next, in the plane and in the window.
    pub(super) from_step: usize,
    pub(super) to_step: usize,
    pub(super) count: usize,
    /// Floats of a line in the window, and the distance between them in the plane.
    pub(super) length: usize,
    pub(super) stride: usize,
}

/// Copies lines.
#[inline(always)]
pub(super) fn lines(from: &[f32], to: &mut [f32], lines: &Lines) {
    let reach = (lines.length - 1) * lines.stride + 1;
    for line in 0..lines.count {
        let from = &from[line * lines.from_step..][..reach];
        let to = &mut to[line * lines.to_step..][..lines.length];
        match lines.stride {
            1 => copy(from, to),
            2 => every::<2>(from, to),
            stride => {
                for (to, from) in to.iter_mut().zip(from.iter().step_by(stride)) {
                    *to = *from;
                }
            }
        }
    }
}

#[inline(always)]
fn every<const STRIDE: usize>(from: &[f32], to: &mut [f32]) {
    let (chunks, _) = from.as_chunks::<STRIDE>();
    let (last, rest) = to.split_last_mut().expect("a line is not empty");
    for (to, from) in rest.iter_mut().zip(chunks) {
        *to = from[0];
    }
    *last = from[from.len() - 1];
}

/// A copy of few floats, without a call.
#[inline(always)]
fn copy(from: &[f32], to: &mut [f32]) {
    const WIDTH: usize = 8;
    if let (Some(from_last), Some(to_last)) =
        (from.last_chunk::<WIDTH>(), to.last_chunk_mut::<WIDTH>())
    {
        // The rest that fills no chunk is copied with some of its predecessors.
        *to_last = *from_last;
        let (from, _) = from.as_chunks::<WIDTH>();
        let (to, _) = to.as_chunks_mut::<WIDTH>();
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    } else {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
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
    let covered: usize = runs.iter().map(|run| run.length).sum();
    if covered < COLUMNS {
        panel.fill(0.0);
    }
    for run in runs {
        let source = &source[run.position..];
        let mut first = 0;
        while first < run.length {
            let length = (run.length - first).min(MAX_LANES);
            let panel = &mut panel[run.lane + first..];
            strip::<COLUMNS>(&source[first..], offsets, panel, length);
            first += length;
        }
    }
}

/// Copies `length` neighbours to each line of a panel.
#[inline(always)]
fn strip<const COLUMNS: usize>(
    source: &[f32],
    offsets: &[usize],
    panel: &mut [f32],
    length: usize,
) {
    macro_rules! by_length {
        ($($length:literal)+) => {
            match length {
                $($length => {
                    for (line, &offset) in panel.chunks_mut(COLUMNS).zip(offsets) {
                        let from = &source[offset..offset + $length];
                        line[..$length].copy_from_slice(from);
                    }
                })+
                _ => unreachable!("a strip is at most {MAX_LANES} wide"),
            }
        };
    }
    by_length!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
}

/// Packs a run of pixels of up to `COLUMNS` planes as `[pixels][COLUMNS]`, zero beyond `planes`.
#[inline(always)]
pub(super) fn transposed<const COLUMNS: usize>(
    source: &[f32],
    plane: usize,
    planes: usize,
    to: &mut [f32],
) {
    let (pixels, _) = to.as_chunks_mut::<COLUMNS>();
    let count = pixels.len();
    for first in (0..COLUMNS).step_by(8) {
        let mut whole = 0;
        if first + 8 <= planes {
            let rows: [&[f32]; 8] =
                std::array::from_fn(|i| &source[(first + i) * plane..][..count]);
            while whole + 8 <= count {
                let tile: [[f32; 8]; 8] =
                    std::array::from_fn(|i| std::array::from_fn(|j| rows[i][whole + j]));
                for (j, pixel) in pixels[whole..whole + 8].iter_mut().enumerate() {
                    pixel[first..first + 8]
                        .copy_from_slice(&std::array::from_fn::<_, 8, _>(|i| tile[i][j]));
                }
                whole += 8;
            }
        }
        for (j, pixel) in pixels.iter_mut().enumerate().skip(whole) {
            for (i, value) in pixel[first..first + 8].iter_mut().enumerate() {
                *value = if first + i < planes {
                    source[(first + i) * plane + j]
                } else {
                    0.0
                };
            }
        }
    }
}
