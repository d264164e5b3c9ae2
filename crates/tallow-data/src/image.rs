//! [`Image`]: a picture in memory, as decoders give it and transforms change it.
//!
//! Reading files is left to the decoders, changing pictures to [`transform`](crate::transform).

use std::fmt;

use crate::{Error, Result};

/// A picture, `[H, W, C]` with one byte a value: grey (`C = 1`) or red, green and blue (`C = 3`).
///
/// ```
/// use tallow_data::Image;
///
/// # fn main() -> tallow_data::Result<()> {
/// let image = Image::new(vec![255, 0, 0, 0, 0, 255], [1, 2], 3)?;
/// assert_eq!((image.height(), image.width(), image.channels()), (1, 2, 3));
/// assert_eq!(image.pixel(0, 1), [0, 0, 255]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    values: Vec<u8>,
    size: [usize; 2],
    channels: usize,
}

impl Image {
    /// A picture of `[height, width]` from its values, row by row, the channels of a pixel side by side.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if a side is zero, `channels` isn't 1 or 3, or the number of values is another one.
    pub fn new(values: Vec<u8>, size: [usize; 2], channels: usize) -> Result<Self> {
        let [height, width] = size;
        let expected = height
            .checked_mul(width)
            .and_then(|pixels| pixels.checked_mul(channels));
        if !matches!(channels, 1 | 3) || expected.is_none_or(|n| n == 0 || n != values.len()) {
            return Err(Error::Setting {
                what: "an image",
                expected: "at least one pixel, 1 or 3 channels, a value for each".into(),
                found: format!(
                    "{} values for {height}x{width} pixels of {channels} channels",
                    values.len()
                ),
            });
        }
        Ok(Self {
            values,
            size,
            channels,
        })
    }

    /// A picture of parts that are known to fit.
    pub(crate) fn from_parts(values: Vec<u8>, size: [usize; 2], channels: usize) -> Self {
        debug_assert_eq!(values.len(), size[0] * size[1] * channels);
        Self {
            values,
            size,
            channels,
        }
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.size[0]
    }

    /// Pixels of a row.
    pub fn width(&self) -> usize {
        self.size[1]
    }

    /// Values of a pixel: 1 or 3.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// All values, `[H, W, C]`.
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// All values, to be changed.
    pub fn values_mut(&mut self) -> &mut [u8] {
        &mut self.values
    }

    /// The values themselves, so that their memory can be used again.
    pub fn into_values(self) -> Vec<u8> {
        self.values
    }

    /// The values of one pixel; empty outside the picture.
    pub fn pixel(&self, y: usize, x: usize) -> &[u8] {
        if y >= self.height() || x >= self.width() {
            return &[];
        }
        &self.values[(y * self.width() + x) * self.channels..][..self.channels]
    }
}

/// Grey from a colour, by the weights of ITU-R 601 in 16 bits: what Pillow's `convert("L")` computes.
pub(crate) fn luma(r: u8, g: u8, b: u8) -> u8 {
    let sum = u32::from(r) * 19_595 + u32::from(g) * 38_470 + u32::from(b) * 7_471 + 0x8000;
    (sum >> 16) as u8
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [height, width] = self.size;
        write!(f, "Image({height}x{width}x{})", self.channels)
    }
}
