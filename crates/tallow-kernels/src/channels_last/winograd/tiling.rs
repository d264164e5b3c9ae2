//! Where the tiles of a batch of images lie.

use super::tiles::MAX_PIXELS;

/// Images `[images, height, width, channels]`, with tiles that start every `step` pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiling {
    images: usize,
    /// Height and width of the images.
    size: [usize; 2],
    /// Tiles down and across.
    tiles: [usize; 2],
    step: usize,
    /// Rows and columns before the image at which the first tile starts.
    before: [usize; 2],
}

/// The part of a tile that lies in its image.
pub(super) struct Inside {
    /// The first pixel, counted from the first of all images.
    pub(super) pixel: usize,
    /// Its row and column in the tile.
    pub(super) first: [usize; 2],
    /// The row and column after the last.
    pub(super) end: [usize; 2],
}

impl Tiling {
    pub(super) fn new(
        images: usize,
        size: [usize; 2],
        tiles: [usize; 2],
        step: usize,
        before: [usize; 2],
    ) -> Self {
        Self {
            images,
            size,
            tiles,
            step,
            before,
        }
    }

    /// Tiles in all images.
    pub(super) fn count(&self) -> usize {
        self.images * self.tiles[0] * self.tiles[1]
    }

    /// Columns of an image.
    pub(super) fn width(&self) -> usize {
        self.size[1]
    }

    /// The image of a tile, and the row and column where it starts, counted from where the first tile does.
    fn place(&self, tile: usize) -> (usize, [usize; 2]) {
        let [down, across] = self.tiles;
        let (image, rest) = (tile / (down * across), tile % (down * across));
        (
            image,
            [rest / across * self.step, rest % across * self.step],
        )
    }

    /// The pixels that exist of a tile of `extent` rows and columns, at least one of which does.
    pub(super) fn inside(&self, tile: usize, extent: usize) -> Inside {
        let (image, start) = self.place(tile);
        let first = [0, 1].map(|axis| self.before[axis].saturating_sub(start[axis]));
        let end = [0, 1].map(|axis| extent.min(self.size[axis] + self.before[axis] - start[axis]));
        let [row, column] = [0, 1].map(|axis| start[axis] + first[axis] - self.before[axis]);
        let [height, width] = self.size;
        Inside {
            pixel: (image * height + row) * width + column,
            first,
            end,
        }
    }

    /// The pixels of a tile of `extent` rows and columns, in `source` or, outside the image, in `zeros`.
    pub(super) fn pixels(
        &self,
        tile: usize,
        extent: usize,
        source: &[f32],
        zeros: &[f32],
    ) -> [*const f32; MAX_PIXELS] {
        let channels = zeros.len();
        let (image, [row, column]) = self.place(tile);
        let [height, width] = self.size;
        let mut pixels = [zeros.as_ptr(); MAX_PIXELS];
        for i in 0..extent {
            // Rows above the image wrap to numbers beyond its height.
            let y = (row + i).wrapping_sub(self.before[0]);
            if y >= height {
                continue;
            }
            let line = (image * height + y) * width;
            for j in 0..extent {
                let x = (column + j).wrapping_sub(self.before[1]);
                if x < width {
                    let pixel = (line + x) * channels;
                    pixels[i * extent + j] = source[pixel..pixel + channels].as_ptr();
                }
            }
        }
        pixels
    }
}
