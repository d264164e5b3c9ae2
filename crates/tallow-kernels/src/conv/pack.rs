//! Copies operands into the order in which the micro-kernels read them.

use super::grid::Run;
use super::micro::MAX_LANES;

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

/// Packs `rows` rows, from row `first` of a group on, of one channel as `[taps][rows]`.
pub(super) fn weights(view: &WeightView<'_>, start: usize, rows: usize, to: &mut [f32]) {
    let mut columns = to.chunks_exact_mut(rows);
    for y in 0..view.taps[0] as isize {
        let mut at = start.wrapping_add_signed(y * view.tap_strides[0]);
        for column in columns.by_ref().take(view.taps[1]) {
            let from = &view.values[at..];
            for (row, value) in column.iter_mut().enumerate() {
                *value = from[row * view.row_stride];
            }
            at = at.wrapping_add_signed(view.tap_strides[1]);
        }
    }
}

/// Lines to copy from a plane into a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines {
    pub(super) from: *const f32,
    pub(super) to: *mut f32,
    /// From one line to the next, in the plane and in the window.
    pub(super) from_step: usize,
    pub(super) to_step: usize,
    pub(super) count: usize,
    /// Floats of a line in the window, and the distance between them in the plane.
    pub(super) length: usize,
    pub(super) stride: usize,
}

type Eight = [f32; 8];

/// Copies lines, `to[i] = from[i * stride]`.
///
/// Lines are short, so this is written not to become calls of `memcpy`.
///
/// # Safety
/// The pointers must be valid for all floats of all lines, and the window's for nobody else.
#[inline(always)]
pub(super) unsafe fn lines(lines: &Lines) {
    for line in 0..lines.count {
        // SAFETY: as the caller promises.
        unsafe {
            let from = lines.from.add(line * lines.from_step);
            let to = lines.to.add(line * lines.to_step);
            match lines.stride {
                1 => eight_by_eight(lines.length, to, from, 1, |i| {
                    from.add(i).cast::<Eight>().read_unaligned()
                }),
                2 => eight_by_eight(lines.length, to, from, 2, |i| {
                    // Sixteen from the first on might reach beyond the plane by one.
                    let a = from.add(2 * i).cast::<Eight>().read_unaligned();
                    let b = from.add(2 * i + 7).cast::<Eight>().read_unaligned();
                    [a[0], a[2], a[4], a[6], b[1], b[3], b[5], b[7]]
                }),
                stride => {
                    for i in 0..lines.length {
                        *to.add(i) = *from.add(i * stride);
                    }
                }
            }
        }
    }
}

/// Writes a line in pieces of eight, of which the last may overlap with its neighbour.
#[inline(always)]
unsafe fn eight_by_eight(
    length: usize,
    to: *mut f32,
    from: *const f32,
    stride: usize,
    piece: impl Fn(usize) -> Eight,
) {
    // SAFETY: as the caller of `lines` promises.
    unsafe {
        if length >= 8 {
            let mut i = 0;
            while i + 8 <= length {
                to.add(i).cast::<Eight>().write_unaligned(piece(i));
                i += 8;
            }
            let last = length - 8;
            to.add(last).cast::<Eight>().write_unaligned(piece(last));
        } else {
            for i in 0..length {
                *to.add(i) = *from.add(i * stride);
            }
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
