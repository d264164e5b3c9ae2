//! [`RandomCrop`]: a window somewhere in a picture, which may be padded first.

use tallow_tensor::rng::Stream;

use super::setting::{Size, check, check_crop, crop};
use super::{Chain, Pipeline, Random, Transform};
use crate::{Image, Result};

/// What lies beyond the edges (torchvision's `padding_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaddingMode {
    /// One value for all channels.
    Constant(u8),
    /// The last pixel again and again.
    Edge,
    /// The picture mirrored, the last pixel not repeated.
    Reflect,
    /// The picture mirrored, the last pixel repeated.
    Symmetric,
}

impl PaddingMode {
    /// The place in a side of `length` pixels that place `at` stands for; `None` for the constant.
    fn place(self, at: isize, length: usize) -> Option<usize> {
        let last = length as isize - 1;
        let place = match self {
            Self::Constant(_) => at,
            Self::Edge => at.clamp(0, last),
            Self::Reflect if at < 0 => -at,
            Self::Reflect if at > last => 2 * last - at,
            Self::Symmetric if at < 0 => -at - 1,
            Self::Symmetric if at > last => 2 * last + 1 - at,
            Self::Reflect | Self::Symmetric => at,
        };
        usize::try_from(place).ok().filter(|&place| place < length)
    }
}

/// torchvision's `RandomCrop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomCrop {
    /// The size of the crop.
    pub size: Size,
    /// Pixels put around the picture first: left, top, right, bottom.
    pub padding: [usize; 4],
    /// What they hold.
    pub padding_mode: PaddingMode,
    /// Pads a picture that is still smaller than the crop by what is missing, on both sides.
    pub pad_if_needed: bool,
}

impl RandomCrop {
    /// A square for one number, height and width for two; no padding.
    pub fn new(size: impl Into<Size>) -> Self {
        Self {
            size: size.into(),
            padding: [0; 4],
            padding_mode: PaddingMode::Constant(0),
            pad_if_needed: false,
        }
    }

    /// The same with `padding` pixels on each side.
    pub fn padding(self, padding: usize, padding_mode: PaddingMode) -> Self {
        Self {
            padding: [padding; 4],
            padding_mode,
            ..self
        }
    }

    /// The same, where a picture smaller than the crop is padded and no error.
    pub fn pad_if_needed(self) -> Self {
        Self {
            pad_if_needed: true,
            ..self
        }
    }

    /// Left, top, right and bottom, for this picture.
    fn padding_of(&self, image: &Image) -> [usize; 4] {
        let [left, top, right, bottom] = self.padding;
        if !self.pad_if_needed {
            return self.padding;
        }
        let Size([height, width]) = self.size;
        let columns = width.saturating_sub(image.width() + left + right);
        let rows = height.saturating_sub(image.height() + top + bottom);
        [left + columns, top + rows, right + columns, bottom + rows]
    }

    /// How far padding may go, given the sides of a picture.
    fn check_padding(&self, image: &Image, padding: [usize; 4]) -> Result<()> {
        let [left, top, right, bottom] = padding;
        let most = match self.padding_mode {
            PaddingMode::Reflect => 1,
            PaddingMode::Symmetric => 0,
            PaddingMode::Constant(_) | PaddingMode::Edge => return Ok(()),
        };
        check(
            "RandomCrop",
            left.max(right) + most <= image.width() && top.max(bottom) + most <= image.height(),
            "mirrored padding that is no wider than the picture",
            || {
                format!(
                    "padding {padding:?} around {}x{} (height x width)",
                    image.height(),
                    image.width()
                )
            },
        )
    }

    /// The window at `top`, `left` of the picture, where places beyond its edges are padding.
    fn window(&self, image: &Image, [top, left]: [isize; 2]) -> Image {
        let Size([height, width]) = self.size;
        let inside = top >= 0
            && left >= 0
            && top as usize + height <= image.height()
            && left as usize + width <= image.width();
        if inside {
            return crop(image, [top as usize, left as usize], self.size.0);
        }
        let channels = image.channels();
        let stride = image.width() * channels;
        let fill = match self.padding_mode {
            PaddingMode::Constant(value) => value,
            _ => 0,
        };
        // The columns that lie in the picture are copied as one piece.
        let first = (-left).clamp(0, width as isize) as usize;
        let end = (image.width() as isize - left).clamp(first as isize, width as isize) as usize;
        let mut values = vec![fill; height * width * channels];
        for (y, row) in values.chunks_exact_mut(width * channels).enumerate() {
            let Some(source) = self.padding_mode.place(top + y as isize, image.height()) else {
                continue;
            };
            let source = &image.values()[source * stride..][..stride];
            let from = (left + first as isize).max(0) as usize * channels;
            let length = (end - first) * channels;
            // A window that lies in the padding alone shows no column.
            if length > 0 {
                row[first * channels..][..length].copy_from_slice(&source[from..][..length]);
            }
            for x in (0..first).chain(end..width) {
                if let Some(place) = self.padding_mode.place(left + x as isize, image.width()) {
                    row[x * channels..][..channels]
                        .copy_from_slice(&source[place * channels..][..channels]);
                }
            }
        }
        Image::from_parts(values, self.size.0, channels)
    }
}

impl Transform<Image> for RandomCrop {
    type Output = Image;
    type Kind = Random;

    fn apply(&self, image: Image, draw: &mut Stream) -> Result<Image> {
        self.check()?;
        let padding = self.padding_of(&image);
        self.check_padding(&image, padding)?;
        let Size([height, width]) = self.size;
        let [left, top, right, bottom] = padding;
        let rows = image.height() + top + bottom;
        let columns = image.width() + left + right;
        if rows < height || columns < width {
            check_crop("RandomCrop", self.size, [image.height(), image.width()])?;
        }
        let mut start = |room: usize, before: usize| match room {
            0 => -(before as isize),
            _ => draw.below(room as u64 + 1) as isize - before as isize,
        };
        let start = [start(rows - height, top), start(columns - width, left)];
        if start == [0, 0] && [image.height(), image.width()] == self.size.0 {
            return Ok(image);
        }
        Ok(self.window(&image, start))
    }

    fn check(&self) -> Result<()> {
        self.size.check("RandomCrop")?;
        check(
            "RandomCrop",
            self.padding.iter().all(|&padding| padding <= 1 << 20),
            "padding of at most 2^20 pixels",
            || format!("{:?}", self.padding),
        )
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Puts `padding` black pixels around, and cuts a window out at random (torchvision's `RandomCrop`). A window larger
    /// than the padded picture is an error. For other padding, `then` a [`RandomCrop`].
    pub fn random_crop(
        self,
        size: impl Into<Size>,
        padding: usize,
    ) -> Pipeline<Chain<T, RandomCrop>>
    where
        RandomCrop: Transform<T::Output>,
    {
        self.then(RandomCrop::new(size).padding(padding, PaddingMode::Constant(0)))
    }
}
