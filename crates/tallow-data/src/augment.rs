//! [`Augment`]: random changes to training images, and the code that applies them while a batch is put together.
//!
//! What an image is changed to depends on the key of its stream alone; keying the stream by sample is left to the
//! [`Loader`](crate::Loader).

use tallow_tensor::rng::Stream;

use crate::normalize::Table;

/// Random changes to training images; the default changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Augment {
    /// Mirrors every other image, by chance, left to right (torchvision's `RandomHorizontalFlip(0.5)`).
    pub horizontal_flip: bool,
    /// Puts this many rows and columns of black around each image, and cuts a window of the old size out of it at
    /// random (torchvision's `RandomCrop(size, padding)`): a shift by up to this many pixels in each direction.
    pub crop_padding: usize,
}

impl Augment {
    /// No changes.
    pub const NONE: Self = Self {
        horizontal_flip: false,
        crop_padding: 0,
    };

    /// A horizontal flip and a shift by up to `padding` pixels: the usual training set-up for CIFAR, with 4.
    pub fn flip_and_crop(padding: usize) -> Self {
        Self {
            horizontal_flip: true,
            crop_padding: padding,
        }
    }

    /// Draws what happens to one image.
    pub(crate) fn draw(self, stream: &mut Stream) -> Change {
        let mut shift = || match self.crop_padding {
            0 => 0,
            padding => stream.below(2 * padding as u64 + 1) as isize - padding as isize,
        };
        let shift = [shift(), shift()];
        Change {
            flip: self.horizontal_flip && stream.below(2) == 1,
            shift,
        }
    }
}

/// What happens to one image.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Change {
    flip: bool,
    /// Down and right: row `y` of the result is row `y - shift[0]` of the image.
    shift: [isize; 2],
}

impl Change {
    /// Writes the changed image: `pixels` and `values` are `[C, H, W]`, with one table a channel.
    pub(crate) fn write(
        self,
        pixels: &[u8],
        [height, width]: [usize; 2],
        tables: &[Table],
        values: &mut [f32],
    ) {
        let plane = height * width;
        let planes = pixels
            .chunks_exact(plane)
            .zip(values.chunks_exact_mut(plane));
        for ((pixels, values), table) in planes.zip(tables) {
            if self.shift == [0, 0] && !self.flip {
                look_up(pixels, table, values);
                continue;
            }
            for (y, values) in values.chunks_exact_mut(width).enumerate() {
                let row = y
                    .checked_add_signed(-self.shift[0])
                    .filter(|&row| row < height);
                match row {
                    Some(row) => self.write_row(&pixels[row * width..][..width], table, values),
                    None => values.fill(table[0]),
                }
            }
        }
    }

    fn write_row(self, pixels: &[u8], table: &Table, values: &mut [f32]) {
        let width = pixels.len();
        let by = self.shift[1].unsigned_abs().min(width);
        let (from, to) = if self.shift[1] < 0 { (by, 0) } else { (0, by) };
        let count = width - by;
        values[..to].fill(table[0]);
        values[to + count..].fill(table[0]);
        look_up(
            &pixels[from..from + count],
            table,
            &mut values[to..to + count],
        );
        if self.flip {
            values.reverse();
        }
    }
}

fn look_up(pixels: &[u8], table: &Table, values: &mut [f32]) {
    for (value, &pixel) in values.iter_mut().zip(pixels) {
        *value = table[usize::from(pixel)];
    }
}
