//! What is read: a convolution seen as a correlation on a grid, and windows on its input.
//!
//! Forward, data gradient and weight gradient all read some planes (`x` or `dy`) at
//! `stride * position + first + step * tap` in each axis, zero where that is outside. A
//! [`Correlation`] holds these numbers. A window is what a block of pixels needs of some planes,
//! with zeros written out and strides taken apart (columns of one residue modulo the stride
//! together), so that neighbouring grid pixels are neighbours in memory for every tap. Where the
//! planes have that form already, the window is the planes themselves.

use super::grid::{Axis, Block, Cursor, Pixel};
use super::micro::Kernels;
use super::pack::Lines;

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

    /// Where pixel `first` lies, to walk on from there.
    pub(super) fn cursor(&self, first: usize) -> Cursor {
        Cursor::new(self.y.grid, self.x.grid, first)
    }

    /// The block of pixels `first..end`, which must not be empty.
    pub(super) fn block(&self, first: usize, end: usize) -> Block {
        Block::new([self.y.grid, self.x.grid], first, end)
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
        let mut plane = phase * self.y.phases * self.x.phases;
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

    /// The window of a block on channels `first..end` of a group; filled into `scratch` (as
    /// [`Correlation::fill_window`] asks for) unless the source will do.
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

    /// Copies what the block needs of channels `first..end` of a group into a scratch window that
    /// holds zeros, or an earlier window of the same block and layout.
    pub(super) fn fill_window(
        &self,
        group: usize,
        (first, end): (usize, usize),
        block: &Block,
        layout: &Layout,
        scratch: &mut [f32],
    ) {
        let copy_lines = Kernels::current().copy_lines;
        let plane = self.y.source * self.x.source;
        let image = self.groups * self.channels * plane;
        let start = self.channel_start(group, first, block);
        for i in 0..block.images {
            for phase in 0..self.y.phases * self.x.phases {
                let (phase_y, phase_x) = (phase / self.x.phases, phase % self.x.phases);
                let height = layout.phase / layout.line;
                let (rows, row) = self.y.inside(block.start_row(i), phase_y, height);
                let (columns, column) = self.x.inside(block.column, phase_x, layout.line);
                if rows.is_empty() || columns.is_empty() {
                    continue;
                }
                let mut lines = Lines {
                    from: std::ptr::null(),
                    to: std::ptr::null_mut(),
                    from_step: self.y.stride * self.x.source,
                    to_step: layout.line,
                    count: rows.len(),
                    length: columns.len(),
                    stride: self.x.stride,
                };
                let from = start + i * image + row * self.x.source + column;
                let from_reach =
                    (lines.count - 1) * lines.from_step + (lines.length - 1) * lines.stride + 1;
                let to = i * layout.image
                    + phase * layout.phase
                    + rows.start * layout.line
                    + columns.start;
                let to_reach = (lines.count - 1) * lines.to_step + lines.length;
                for c in 0..end - first {
                    lines.from = self.source[from + c * plane..][..from_reach].as_ptr();
                    lines.to = scratch[to + c * layout.plane..][..to_reach].as_mut_ptr();
                    // SAFETY: the slices hold all lines; the table's kernels run on this CPU.
                    unsafe { copy_lines(&lines) };
                }
            }
        }
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
        let mut skipped = first - channel * self.taps();
        let mut offsets = offsets[..end - first].iter_mut();
        for channel in 0.. {
            for row in y.offsets(x.phases * layout.phase, layout.line) {
                for tap in x.offsets(layout.phase, 1) {
                    if skipped > 0 {
                        skipped -= 1;
                        continue;
                    }
                    let Some(offset) = offsets.next() else {
                        return;
                    };
                    *offset = channel * layout.plane + row + tap;
                }
            }
        }
    }
}

/// Floats after a window that may be read, and hold numbers.
pub(super) const SLACK: usize = 2 * super::micro::MAX_LANES;

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

    /// Floats from the first pixel of a block to the last, in one image.
    pub(super) fn flat_len(&self, block: &Block) -> usize {
        (block.rows - 1) * self.line + block.columns
    }

    /// Where a pixel lies among such stretches of `stretch` floats, one an image.
    pub(super) fn flat_position(&self, block: &Block, stretch: usize, pixel: Pixel) -> usize {
        let i = pixel.image - block.first_image;
        let line = (pixel.y - block.start_row(i)) * self.line;
        i * stretch + line + pixel.x - block.column
    }
}
