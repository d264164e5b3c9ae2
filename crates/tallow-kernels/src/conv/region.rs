//! Which pixels a kernel reads: a convolution seen as a correlation on a grid, cut into blocks.
//!
//! Forward, data gradient and weight gradient all read some planes (`x` or `dy`) at
//! `stride * position + first + step * tap` in each axis, zero where that is outside. A
//! [`Correlation`] holds these numbers; a [`Block`] is a row of grid pixels, counted through
//! rows and images; a [`Window`] is what a block needs of some planes, with zeros written out and
//! strides taken apart, so that neighbouring grid pixels are neighbours in memory for every tap.
//! Where the planes have that form already, the window is the planes themselves.

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
}

impl Axis {
    /// Residues of the source coordinate, modulo the stride, that taps fall on. Tap `t` falls on
    /// number `t % phases()`.
    fn phases(&self) -> usize {
        (self.stride / gcd(self.stride, self.step)).min(self.taps)
    }

    /// Window positions from one tap to the next of the same phase.
    fn shift(&self) -> usize {
        self.step / gcd(self.stride, self.step)
    }

    /// Window positions beyond the grid's own.
    fn halo(&self) -> usize {
        (self.taps - 1) / self.phases() * self.shift()
    }

    /// Source coordinate of window position 0 in a phase, for a window that starts at a grid
    /// position.
    fn origin(&self, position: usize, phase: usize) -> isize {
        (self.stride * position + self.step * phase) as isize + self.first
    }

    /// Whether every tap of every position is inside, and next to that of the next position.
    fn is_plain(&self) -> bool {
        let last = self.first + (self.grid - 1 + (self.taps - 1) * self.step) as isize;
        self.stride == 1 && self.first >= 0 && last < self.source as isize
    }
}

pub(super) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What is read, of a batch of images whose channels fall into groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Correlation<'a> {
    /// `[images, groups * channels, y.source, x.source]`.
    pub(super) source: &'a [f32],
    pub(super) images: usize,
    pub(super) groups: usize,
    /// Channels of a group.
    pub(super) channels: usize,
    pub(super) y: Axis,
    pub(super) x: Axis,
}

impl<'a> Correlation<'a> {
    /// Taps of one channel.
    pub(super) fn taps(&self) -> usize {
        self.y.taps * self.x.taps
    }

    /// Terms of the sum for one output: channels by rows by columns of the kernel.
    pub(super) fn depth(&self) -> usize {
        self.channels * self.taps()
    }

    /// Grid pixels of one image.
    pub(super) fn grid(&self) -> usize {
        self.y.grid * self.x.grid
    }

    /// Grid pixels of all images.
    pub(super) fn pixels(&self) -> usize {
        self.images * self.grid()
    }

    /// Whether windows are the source itself.
    pub(super) fn is_plain(&self) -> bool {
        self.y.is_plain() && self.x.is_plain()
    }

    /// Calls `f` for the runs of pixels `first..end` that lie in one row of one image, or, with
    /// `across_rows`, in one image.
    pub(super) fn for_runs(
        &self,
        first: usize,
        end: usize,
        across_rows: bool,
        mut f: impl FnMut(Pixel, usize),
    ) {
        let (grid, columns) = (self.grid(), self.x.grid);
        let mut image = first / grid;
        let mut y = first % grid / columns;
        let mut x = first % columns;
        let mut left = end - first;
        while left > 0 {
            let row_end = if across_rows {
                grid - y * columns
            } else {
                columns
            };
            let length = (row_end - x).min(left);
            f(Pixel { image, y, x }, length);
            left -= length;
            x = 0;
            y += 1;
            if across_rows || y == self.y.grid {
                y = 0;
                image += 1;
            }
        }
    }

    /// The block of pixels `first..end`, which must not be empty.
    pub(super) fn block(&self, first: usize, end: usize) -> Block {
        let (grid, columns) = (self.grid(), self.x.grid);
        let (first_image, last_image) = (first / grid, (end - 1) / grid);
        let (first_row, last_row) = (first % grid / columns, (end - 1) % grid / columns);
        let mut block = Block {
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
            let tail = self.y.grid - first_row;
            let middle = if block.images > 2 { self.y.grid } else { 0 };
            block.rows = tail.max(last_row + 1).max(middle);
        } else if block.rows == 1 {
            block.column = first % columns;
            block.columns = end - first;
        }
        block
    }

    /// How the windows of a block lie in memory, each of `channels` planes.
    pub(super) fn layout(&self, block: &Block, channels: usize) -> Layout {
        if self.is_plain() {
            let plane = self.y.source * self.x.source;
            return Layout {
                line: self.x.source,
                phase: 0,
                plane,
                image: self.groups * self.channels * plane,
                row: 0,
                column: 0,
                across_rows: self.x.source == self.x.grid,
            };
        }
        self.scratch_layout(block, channels)
    }

    /// As [`Correlation::layout`], for a window that is a copy in any case.
    pub(super) fn scratch_layout(&self, block: &Block, channels: usize) -> Layout {
        let line = block.columns + self.x.halo();
        let phase = line * (block.rows + self.y.halo());
        let mut plane = phase * self.y.phases() * self.x.phases();
        if plane.is_multiple_of(256) {
            // Planes a power of two apart would share few sets of the cache.
            plane += 16;
        }
        Layout {
            line,
            phase,
            plane,
            image: plane * channels,
            row: block.row,
            column: block.column,
            across_rows: line == self.x.grid,
        }
    }

    /// Floats of scratch that the windows of a block take.
    pub(super) fn window_len(&self, block: &Block, layout: &Layout) -> usize {
        if self.is_plain() {
            0
        } else {
            self.scratch_len(block, layout)
        }
    }

    /// Floats that a copied window takes.
    pub(super) fn scratch_len(&self, block: &Block, layout: &Layout) -> usize {
        block.images * layout.image + SLACK
    }

    /// The window of a block on channels `first..end` of a group; filled into `scratch` unless
    /// the source will do.
    pub(super) fn window<'w>(
        &self,
        group: usize,
        channels: (usize, usize),
        block: &Block,
        layout: &Layout,
        scratch: &'w mut [f32],
    ) -> &'w [f32]
    where
        'a: 'w,
    {
        if self.is_plain() {
            let corner = self.y.first as usize * self.x.source + self.x.first as usize;
            return &self.source[self.channel_start(group, channels.0, block) + corner..];
        }
        self.fill_window(group, channels, block, layout, scratch);
        scratch
    }

    /// Position of a channel in the block's first image.
    fn channel_start(&self, group: usize, channel: usize, block: &Block) -> usize {
        let image = block.first_image * self.groups * self.channels;
        (image + group * self.channels + channel) * self.y.source * self.x.source
    }

    /// Copies what the block needs of channels `first..end` of a group, and zeros around it.
    pub(super) fn fill_window(
        &self,
        group: usize,
        (first, end): (usize, usize),
        block: &Block,
        layout: &Layout,
        scratch: &mut [f32],
    ) {
        let plane = self.y.source * self.x.source;
        let image = self.groups * self.channels * plane;
        let start = self.channel_start(group, first, block);
        for i in 0..block.images {
            for c in 0..end - first {
                let from = &self.source[start + i * image + c * plane..][..plane];
                let to = &mut scratch[i * layout.image + c * layout.plane..][..layout.plane];
                self.fill(from, block.start_row(i), block, layout, to);
            }
        }
        let tail = (block.images - 1) * layout.image + (end - first) * layout.plane;
        scratch[tail..][..SLACK].fill(0.0);
    }

    /// Writes one plane of a window whose first row stands for grid row `row`.
    fn fill(&self, from: &[f32], row: usize, block: &Block, layout: &Layout, to: &mut [f32]) {
        let (y, x) = (&self.y, &self.x);
        for phase_y in 0..y.phases() {
            for phase_x in 0..x.phases() {
                let phase = (phase_y * x.phases() + phase_x) * layout.phase;
                let lines = to[phase..][..layout.phase].chunks_exact_mut(layout.line);
                let left = x.origin(block.column, phase_x);
                let mut source_row = y.origin(row, phase_y);
                for line in lines {
                    if (0..y.source as isize).contains(&source_row) {
                        let values = &from[source_row as usize * x.source..][..x.source];
                        fill_line(values, left, x.stride, line);
                    } else {
                        line.fill(0.0);
                    }
                    source_row += y.stride as isize;
                }
            }
        }
        to[y.phases() * x.phases() * layout.phase..].fill(0.0);
    }

    /// Offsets into a window of the terms `first..end` of the sum, for a window that starts at
    /// channel `channel`.
    pub(super) fn tap_offsets(
        &self,
        (first, end): (usize, usize),
        channel: usize,
        layout: &Layout,
        offsets: &mut [usize],
    ) {
        let (y, x) = (&self.y, &self.x);
        for (term, offset) in (first..end).zip(offsets) {
            let (ky, kx) = (term / x.taps % y.taps, term % x.taps);
            let phase = ky % y.phases() * x.phases() + kx % x.phases();
            *offset = (term / self.taps() - channel) * layout.plane
                + phase * layout.phase
                + ky / y.phases() * y.shift() * layout.line
                + kx / x.phases() * x.shift();
        }
    }
}

/// Floats after a window that may be read, and hold numbers.
pub(super) const SLACK: usize = 2 * super::micro::MAX_LANES;

/// Fills `line[j] = values[left + j * stride]`, zero outside.
fn fill_line(values: &[f32], left: isize, stride: usize, line: &mut [f32]) {
    let skipped = (-left).max(0) as usize;
    let start = skipped.div_ceil(stride).min(line.len());
    let inside = values.len() as isize - (left + (start * stride) as isize);
    let end = start
        + (inside.max(0) as usize)
            .div_ceil(stride)
            .min(line.len() - start);
    line[..start].fill(0.0);
    line[end..].fill(0.0);
    if start == end {
        return;
    }
    let values = &values[(left + (start * stride) as isize) as usize..];
    let line = &mut line[start..end];
    if stride == 1 {
        line.copy_from_slice(&values[..line.len()]);
    } else {
        for (to, from) in line.iter_mut().zip(values.chunks(stride)) {
            *to = from[0];
        }
    }
}

/// A place on the grid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pixel {
    pub(super) image: usize,
    pub(super) y: usize,
    pub(super) x: usize,
}

/// A row of pixels `first..end`, and the part of the grid that holds it in each image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) first_image: usize,
    pub(super) images: usize,
    /// First row, in the first image; others start at row 0.
    row: usize,
    /// The most rows of an image.
    rows: usize,
    /// First column.
    column: usize,
    columns: usize,
}

impl Block {
    pub(super) fn len(&self) -> usize {
        self.end - self.first
    }

    /// The first grid row of the block's `i`th image.
    pub(super) fn start_row(&self, i: usize) -> usize {
        if i == 0 { self.row } else { 0 }
    }

    /// Floats from the first pixel to the last of an image, on the lines of a window.
    pub(super) fn flat_len(&self, layout: &Layout) -> usize {
        (self.rows - 1) * layout.line + self.columns
    }

    /// Where a pixel lies among such stretches of `stretch` floats, one an image.
    pub(super) fn flat_position(&self, layout: &Layout, stretch: usize, pixel: Pixel) -> usize {
        let i = pixel.image - self.first_image;
        let line = (pixel.y - self.start_row(i)) * layout.line;
        i * stretch + line + pixel.x - self.column
    }
}

/// Strides of a window, in floats.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// From one grid row to the next.
    pub(super) line: usize,
    /// From one phase to the next.
    phase: usize,
    /// From one channel to the next.
    plane: usize,
    /// From one image to the next.
    pub(super) image: usize,
    /// Grid row and column that the window starts at.
    row: usize,
    column: usize,
    /// Whether grid rows follow each other without a gap.
    pub(super) across_rows: bool,
}

impl Layout {
    /// Offset of a pixel for the first tap.
    pub(super) fn position(&self, block: &Block, pixel: Pixel) -> usize {
        let image = pixel.image - block.first_image;
        let row = if image == 0 { self.row } else { 0 };
        image * self.image + (pixel.y - row) * self.line + pixel.x - self.column
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
