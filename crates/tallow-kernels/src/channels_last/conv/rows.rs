//! Where the rows of a block of pixels lie: the source's under every tap, and the target's.

use std::ops::Range;

use super::correlation::Correlation;
use crate::workspace::{Scratch, Workspace};

/// What a correlation reads: pixels of several channels each, in images.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    values: &'a [f32],
    /// Floats from one image, row and pixel to the next.
    image: usize,
    row: usize,
    pixel: usize,
    /// Whether a pixel of all images comes before the next pixel.
    pub(super) images_inner: bool,
}

impl<'a> Source<'a> {
    /// All of `[height, width, images, channels]`.
    pub(super) fn interleaved(
        values: &'a [f32],
        [_, width]: [usize; 2],
        images: usize,
        channels: usize,
    ) -> Self {
        Self {
            values,
            image: channels,
            row: width * images * channels,
            pixel: images * channels,
            images_inner: true,
        }
    }

    /// All of `[images, height, width, channels]`.
    pub(super) fn whole(values: &'a [f32], [height, width]: [usize; 2], channels: usize) -> Self {
        Self {
            values,
            image: height * width * channels,
            row: width * channels,
            pixel: channels,
            images_inner: false,
        }
    }
}

/// The order in which pixels of all images are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    /// Positions down and across.
    pub(super) grid: [usize; 2],
    pub(super) images: usize,
    /// One position of all images before the next position.
    pub(super) images_inner: bool,
}

/// A pixel of a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pixel {
    pub(super) image: usize,
    pub(super) y: usize,
    pub(super) x: usize,
}

impl Order {
    /// Pixel number `index`.
    #[inline(always)]
    pub(super) fn pixel(&self, index: usize) -> Pixel {
        let [height, width] = self.grid;
        let (image, position) = if self.images_inner {
            (index % self.images, index / self.images)
        } else {
            (index / (height * width), index % (height * width))
        };
        Pixel {
            image,
            y: position / width,
            x: position % width,
        }
    }

    /// The number of a pixel where images come one after the other.
    #[inline(always)]
    pub(super) fn place(&self, pixel: Pixel) -> usize {
        (pixel.image * self.grid[0] + pixel.y) * self.grid[1] + pixel.x
    }

    /// The pixel after `pixel`.
    #[inline(always)]
    pub(super) fn next(&self, mut pixel: Pixel) -> Pixel {
        let [height, width] = self.grid;
        if self.images_inner {
            pixel.image += 1;
            if pixel.image < self.images {
                return pixel;
            }
            pixel.image = 0;
        }
        pixel.x += 1;
        if pixel.x == width {
            pixel.x = 0;
            pixel.y += 1;
            if pixel.y == height {
                pixel.y = 0;
                pixel.image += usize::from(!self.images_inner);
            }
        }
        pixel
    }
}

/// Pointers to the rows of a block of pixels, `[taps][pixels]`; padding points to a row of zeros.
pub(super) struct RowTable<'w> {
    pointers: Scratch<'w, usize>,
    pub(super) pixels: usize,
    zeros: *const f32,
}

impl<'w> RowTable<'w> {
    /// Fills the table for pixels `first..first + pixels` of a correlation, of which a group's channels start at
    /// `offset`. `zeros` must be as long as a row.
    pub(super) fn new(
        correlation: &Correlation,
        order: &Order,
        [first, pixels]: [usize; 2],
        source: &Source<'_>,
        offset: usize,
        zeros: &[f32],
        workspace: &'w Workspace,
    ) -> Self {
        let mut table = Self {
            pointers: workspace.take_indices(correlation.taps() * pixels),
            pixels,
            zeros: zeros.as_ptr(),
        };
        table.fill(correlation, order, first, source, offset);
        table
    }

    fn fill(
        &mut self,
        correlation: &Correlation,
        order: &Order,
        first: usize,
        source: &Source<'_>,
        offset: usize,
    ) {
        let (pixels, zeros) = (self.pixels, self.zeros);
        let [down, across] = &correlation.axes;
        let start = source.values.as_ptr();
        let table = self.pointers_mut();
        let mut done = 0;
        // Pixels side by side, or those of all images at a position, read rows that are evenly spaced.
        while done < pixels {
            let pixel = order.pixel(first + done);
            let (to_end, step) = match order.images_inner {
                true => (order.images - pixel.image, source.image),
                false => (order.grid[1] - pixel.x, across.stride * source.pixel),
            };
            let run = to_end.min(pixels - done);
            for tap in 0..down.taps * across.taps {
                let (y, x) = (tap / across.taps, tap % across.taps);
                let row = down.read(pixel.y, y).map(|y| y * source.row);
                let live = across.live(x);
                let live = match order.images_inner {
                    _ if row.is_none() => 0..0,
                    true if !live.contains(&pixel.x) => 0..0,
                    true => 0..run,
                    false => {
                        let [start, end] = [live.start, live.end]
                            .map(|position| position.saturating_sub(pixel.x).min(run));
                        start..end
                    }
                };
                let row = row.unwrap_or(0) + pixel.image * source.image + offset;
                let to = &mut table[tap * pixels + done..][..run];
                to[..live.start].fill(zeros);
                to[live.end..].fill(zeros);
                if let Some(column) = across.read(pixel.x + live.start, x) {
                    let place = row + column * source.pixel;
                    for (index, to) in to[live].iter_mut().enumerate() {
                        *to = start.wrapping_add(place + index * step);
                    }
                }
            }
            done += run;
        }
    }

    fn pointers_mut(&mut self) -> &mut [*const f32] {
        let len = self.pointers.len();
        // SAFETY: as many integers of a pointer's size and alignment, borrowed exclusively; any bytes are a pointer.
        unsafe { std::slice::from_raw_parts_mut(self.pointers.as_mut_ptr().cast(), len) }
    }

    /// Where the pointer of a pixel under a tap stands; the same pixel's under the next tap is `pixels` further.
    #[inline(always)]
    pub(super) fn at(&self, tap: usize, pixel: usize) -> *const *const f32 {
        let pointers = self.pointers.as_ptr().cast::<*const f32>();
        pointers.wrapping_add(tap * self.pixels + pixel)
    }

    /// Asks for the floats `floats` of some pixels' rows under a tap ahead of their use, a cache line at a time: rows lie
    /// apart, which the hardware doesn't foresee.
    #[inline(always)]
    pub(super) fn prefetch(&self, tap: usize, pixels: Range<usize>, floats: &Range<usize>) {
        for row in &self.pointers[tap * self.pixels..][pixels] {
            for float in floats.clone().step_by(LINE) {
                prefetch(row.wrapping_add(float * size_of::<f32>()));
            }
        }
    }

    /// The pixels from the first to the last that don't read padding under a tap.
    pub(super) fn live(&self, tap: usize) -> Range<usize> {
        let rows = &self.pointers[tap * self.pixels..][..self.pixels];
        let live = |row: &usize| *row != self.zeros.addr();
        let first = rows.iter().position(live).unwrap_or(self.pixels);
        let end = rows.iter().rposition(live).map_or(first, |last| last + 1);
        first..end
    }

    /// Whether some of `pixels` don't read padding under a tap.
    pub(super) fn reads(&self, tap: usize, pixels: Range<usize>) -> bool {
        let rows = &self.pointers[tap * self.pixels..][pixels];
        rows.iter().any(|&row| row != self.zeros.addr())
    }
}

/// Floats of a cache line.
const LINE: usize = 16;

/// Asks for the cache line of an address, which may be any.
#[inline(always)]
fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: SSE is part of x86-64; a prefetch touches nothing, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::without_provenance(address)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
