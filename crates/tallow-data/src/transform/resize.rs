//! [`Resize`]: pictures of another size.

use tallow_tensor::rng::Stream;

use super::resample::{Interpolation, resample};
use super::setting::Size;
use super::{Chain, Fixed, Pipeline, Transform};
use crate::{Image, Result};

/// To which size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeTo {
    /// The shorter side becomes this long, the other one keeps its proportion (rounded down).
    Shorter(usize),
    /// Height and width.
    Exact([usize; 2]),
}

impl From<usize> for ResizeTo {
    fn from(side: usize) -> Self {
        Self::Shorter(side)
    }
}

impl From<[usize; 2]> for ResizeTo {
    fn from(size: [usize; 2]) -> Self {
        Self::Exact(size)
    }
}

impl ResizeTo {
    fn size(self, image: &Image) -> [usize; 2] {
        let (height, width) = (image.height(), image.width());
        let long = |side: usize, long: usize, short: usize| {
            (side as u128 * long as u128 / short as u128) as usize
        };
        match self {
            Self::Exact(size) => size,
            Self::Shorter(side) if height <= width => [side, long(side, width, height)],
            Self::Shorter(side) => [long(side, height, width), side],
        }
    }
}

/// torchvision's `Resize`, antialiased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize {
    /// The size to reach.
    pub to: ResizeTo,
    /// How; bilinear by default.
    pub interpolation: Interpolation,
}

impl Resize {
    /// Bilinear resizing: the shorter side for a number, height and width for two.
    pub fn new(to: impl Into<ResizeTo>) -> Self {
        Self {
            to: to.into(),
            interpolation: Interpolation::Bilinear,
        }
    }

    /// The same with another interpolation.
    pub fn interpolation(self, interpolation: Interpolation) -> Self {
        Self {
            interpolation,
            ..self
        }
    }
}

impl Transform<Image> for Resize {
    type Output = Image;
    type Kind = Fixed;

    fn apply(&self, image: Image, _draw: &mut Stream) -> Result<Image> {
        self.check()?;
        let (height, width) = (image.height(), image.width());
        let size = self.to.size(&image);
        if size == [height, width] {
            return Ok(image);
        }
        resample(&image, [0, 0, height, width], size, self.interpolation)
    }

    fn check(&self) -> Result<()> {
        let size = match self.to {
            ResizeTo::Exact(size) => size,
            ResizeTo::Shorter(side) => [side; 2],
        };
        Size(size).check("Resize")
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Resizes with antialiased bilinear interpolation (torchvision's `Resize`): `resize(256)` makes the shorter side 256,
    /// `resize([224, 320])` gives height 224 and width 320.
    pub fn resize(self, to: impl Into<ResizeTo>) -> Pipeline<Chain<T, Resize>>
    where
        Resize: Transform<T::Output>,
    {
        self.then(Resize::new(to))
    }
}
