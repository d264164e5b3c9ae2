//! Places: the axes of a correlation, and the pixels of a batch counted in a row.
//!
//! Where outputs are computed is a grid, `[images, height, width]`; pixels are counted through
//! its rows and images, and a [`Block`] is a row of such numbers. What is read for them follows
//! from an [`Axis`] each for height and width.

use std::ops::Range;

/// One axis of a correlation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    /// Grid positions.
    pub(super) grid: usize,
    /// Extent of the planes that are read.
    pub(super) source: usize,
    /// Source pixels from one grid position to the next.
    pub(super) stride: usize,
    /// Source pixel of the first tap at the first position.
    pub(super) first: isize,
    /// Source pixels from one tap to the next.
    pub(super) step: usize,
    /// Taps.
    pub(super) taps: usize,
    /// Residues of the source coordinate, modulo the stride, that taps fall on; tap `t` falls on
    /// number `t % phases`.
    pub(super) phases: usize,
    /// Window positions from one tap to the next of the same phase.
    pub(super) shift: usize,
}

impl Axis {
    /// Tap `t` of position `p`, of `grid`, reads source pixel `stride * p + first + step * t`, if
    /// that is below `source`.
    pub(super) fn new(
        grid: usize,
        source: usize,
        stride: usize,
        first: isize,
        step: usize,
        taps: usize,
    ) -> Self {
        let common = gcd(stride, step);
        Self {
            grid,
            source,
            stride,
            first,
            step,
            taps,
            phases: (stride / common).min(taps),
            shift: step / common,
        }
    }

    /// Window positions beyond the grid's own.
    pub(super) fn halo(&self) -> usize {
        (self.taps - 1) / self.phases * self.shift
    }

    /// Whether every tap of every position is inside, and next to that of the next position.
    pub(super) fn is_plain(&self) -> bool {
        let last = self.first + (self.grid - 1 + (self.taps - 1) * self.step) as isize;
        self.stride == 1 && self.first >= 0 && last < self.source as isize
    }

    /// Of `len` window positions of a phase, for a window that starts at grid position
    /// `position`: the range that lies inside, and the source pixel of its start.
    pub(super) fn inside(
        &self,
        position: usize,
        phase: usize,
        len: usize,
    ) -> (Range<usize>, usize) {
        let origin = (self.stride * position + self.step * phase) as isize + self.first;
        let start = (origin.min(0).unsigned_abs()).div_ceil(self.stride);
        let source = (origin + (start * self.stride) as isize) as usize;
        let end = start + self.source.saturating_sub(source).div_ceil(self.stride);
        (start.min(len)..end.min(len), source)
    }

    /// Offsets of the taps, for phases that lie `phase` apart and positions `position` apart.
    pub(super) fn offsets(&self, phase: usize, position: usize) -> impl Iterator<Item = usize> {
        let (phases, shift) = (self.phases, self.shift);
        let rounds = (0..self.taps.div_ceil(phases)).map(move |round| round * shift * position);
        rounds
            .flat_map(move |round| (0..phases).map(move |number| round + number * phase))
            .take(self.taps)
    }
}

pub(super) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A place on the grid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pixel {
    pub(super) image: usize,
    pub(super) y: usize,
    pub(super) x: usize,
}

/// A walk through the pixels of all images.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor {
    at: Pixel,
    /// Size of the grid.
    rows: usize,
    columns: usize,
}

impl Cursor {
    /// At pixel `first` of images of `rows` by `columns` pixels.
    pub(super) fn new(rows: usize, columns: usize, first: usize) -> Self {
        let grid = rows * columns;
        Self {
            at: Pixel {
                image: first / grid,
                y: first % grid / columns,
                x: first % columns,
            },
            rows,
            columns,
        }
    }

    /// The next at most `most` pixels that lie in one row of one image, or, with `across_rows`,
    /// in one image: the first of them, and their number.
    #[inline]
    pub(super) fn advance(&mut self, most: usize, across_rows: bool) -> (Pixel, usize) {
        let first = self.at;
        let room = if across_rows {
            (self.rows - first.y) * self.columns - first.x
        } else {
            self.columns - first.x
        };
        if room > most {
            self.at.x += most;
            if across_rows && self.at.x >= self.columns {
                self.at.y += self.at.x / self.columns;
                self.at.x %= self.columns;
            }
            return (first, most);
        }
        self.at.x = 0;
        self.at.y += 1;
        if across_rows || self.at.y == self.rows {
            self.at.y = 0;
            self.at.image += 1;
        }
        (first, room)
    }

    /// Calls `f(lane, pixel, length)` for the runs that the next `len` pixels fall into, counting
    /// lanes from 0.
    #[inline]
    pub(super) fn runs(
        &mut self,
        len: usize,
        across_rows: bool,
        mut f: impl FnMut(usize, Pixel, usize),
    ) {
        let mut lane = 0;
        while lane < len {
            let (pixel, length) = self.advance(len - lane, across_rows);
            f(lane, pixel, length);
            lane += length;
        }
    }
}

/// A row of pixels `first..end`, and the part of the grid that holds it in each image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) first_image: usize,
    pub(super) images: usize,
    /// First row, in the first image; others start at row 0.
    pub(super) row: usize,
    /// The most rows of an image.
    pub(super) rows: usize,
    /// First column.
    pub(super) column: usize,
    pub(super) columns: usize,
}

impl Block {
    /// The pixels `first..end`, at least one, of images of `grid` pixels down and across.
    pub(super) fn new(grid: [usize; 2], first: usize, end: usize) -> Self {
        let [height, columns] = grid;
        let pixels = height * columns;
        let (first_image, last_image) = (first / pixels, (end - 1) / pixels);
        let (first_row, last_row) = (first % pixels / columns, (end - 1) % pixels / columns);
        let mut block = Self {
            first,
            end,
            first_image,
            images: last_image - first_image + 1,
            row: first_row,
            rows: (last_row + 1).saturating_sub(first_row),
            column: 0,
            columns,
        };
        if block.images > 1 {
            let middle = if block.images > 2 { height } else { 0 };
            block.rows = (height - first_row).max(last_row + 1).max(middle);
        } else if block.rows == 1 {
            block.column = first % columns;
            block.columns = end - first;
        }
        block
    }

    pub(super) fn len(&self) -> usize {
        self.end - self.first
    }

    /// The first grid row of the block's `i`th image.
    pub(super) fn start_row(&self, i: usize) -> usize {
        if i == 0 { self.row } else { 0 }
    }
}

/// Pixels of a panel that are neighbours in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Run {
    /// First column of the panel.
    pub(super) lane: usize,
    pub(super) length: usize,
    /// Offset into the window.
    pub(super) position: usize,
}
