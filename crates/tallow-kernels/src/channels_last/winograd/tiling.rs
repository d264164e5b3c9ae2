//! Where the tiles of a batch of images lie.

use super::tiles::MAX_PIXELS;

/// Images `[images, height, width, channels]`, covered by tiles that are read `extent` pixels wide every `step`.
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

impl Tiling {
    /// Tiles of `step` outputs each, for outputs of the given size.
    pub(super) fn new(
        images: usize,
        size: [usize; 2],
        outputs: [usize; 2],
        step: usize,
        before: [usize; 2],
    ) -> Self {
        Self {
            images,
            size,
            tiles: outputs.map(|outputs| outputs.div_ceil(step)),
            step,
            before,
        }
    }

    /// Tiles in all images.
    pub(super) fn count(&self) -> usize {
        self.images * self.tiles[0] * self.tiles[1]
    }

    /// The image of a tile, and the row and column of its first output.
    pub(super) fn place(&self, tile: usize) -> (usize, [usize; 2]) {
        let [down, across] = self.tiles;
        let (image, rest) = (tile / (down * across), tile % (down * across));
        (
            image,
            [rest / across * self.step, rest % across * self.step],
        )
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
