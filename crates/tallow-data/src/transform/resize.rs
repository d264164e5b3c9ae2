//! [`Resize`]: pictures of another size.

use tallow_tensor::rng::Stream;

use super::resample::{Interpolation, resample, resample_part};
use super::setting::{Size, check};
use super::{Chain, Fixed, Pipeline, Staged, Transform};
use crate::{Image, Result};

/// To which size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeTo {
    /// The shorter side becomes this long, the other one keeps its proportion (rounded down).
    Shorter(usize),
    /// The longer side becomes this long, the other one keeps its proportion (rounded down): torchvision's `size=None` with
    /// `max_size`.
    Longer(usize),
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

/// torchvision's `Resize`, antialiased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize {
    /// The size to reach.
    pub to: ResizeTo,
    /// The most that the longer side may become with [`ResizeTo::Shorter`]; where it would be longer, it becomes this long, and
    /// the shorter one gives way.
    pub max_size: Option<usize>,
    /// How; bilinear by default.
    pub interpolation: Interpolation,
}

impl Resize {
    /// Bilinear resizing: the shorter side for a number, height and width for two.
    pub fn new(to: impl Into<ResizeTo>) -> Self {
        Self {
            to: to.into(),
            max_size: None,
            interpolation: Interpolation::Bilinear,
        }
    }

    /// The same with a bound on the longer side, which is above the length of the shorter one.
    ///
    /// ```
    /// use tallow_data::Image;
    /// use tallow_data::transform::{FixedPipeline, Resize, pipeline};
    ///
    /// # fn main() -> tallow_data::Result<()> {
    /// let resize = pipeline().then(Resize::new(10).max_size(20));
    /// let banner = resize.apply_fixed(Image::new(vec![0; 20 * 100], [20, 100], 1)?)?;
    /// assert_eq!([banner.height(), banner.width()], [4, 20]); // and not 10 x 50
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_size(self, max_size: usize) -> Self {
        Self {
            max_size: Some(max_size),
            ..self
        }
    }

    /// The same with another interpolation.
    pub fn interpolation(self, interpolation: Interpolation) -> Self {
        Self {
            interpolation,
            ..self
        }
    }

    /// Height and width of what becomes of `image`.
    pub(super) fn size(&self, image: &Image) -> Result<[usize; 2]> {
        self.check_settings()?;
        let sides = [image.height(), image.width()];
        let (short, long) = (sides[0].min(sides[1]), sides[0].max(sides[1]));
        let [new_short, new_long] = match (self.to, self.max_size) {
            (ResizeTo::Exact(size), _) => return Ok(size),
            (ResizeTo::Longer(side), _) => [share(side, short, long), side],
            (ResizeTo::Shorter(side), max_size) => match (share(side, long, short), max_size) {
                (other, Some(most)) if other > most => [share(most, side, other), most],
                (other, _) => [side, other],
            },
        };
        let size = match sides {
            [height, width] if height <= width => [new_short, new_long],
            _ => [new_long, new_short],
        };
        Size(size).check("Resize")?;
        Ok(size)
    }

    /// The part of `part` pixels at `start` of what becomes of `image`, which is of `size`.
    pub(super) fn part(
        &self,
        image: Image,
        size: [usize; 2],
        start: [usize; 2],
        part: [usize; 2],
    ) -> Result<Image> {
        resample_part(&image, size, start, part, self.interpolation)
    }

    fn check_settings(&self) -> Result<()> {
        let size = match self.to {
            ResizeTo::Exact(size) => size,
            ResizeTo::Shorter(side) | ResizeTo::Longer(side) => [side; 2],
        };
        Size(size).check("Resize")?;
        let Some(most) = self.max_size else {
            return Ok(());
        };
        check(
            "the max_size of Resize",
            matches!(self.to, ResizeTo::Shorter(side) if side < most),
            "a length above that of the shorter side, which is the one that is given",
            || format!("{most} with {:?}", self.to),
        )
    }
}

/// `side * numerator / denominator`, rounded down.
fn share(side: usize, numerator: usize, denominator: usize) -> usize {
    (side as u128 * numerator as u128 / denominator as u128) as usize
}

impl Transform<Image> for Resize {
    type Output = Image;
    type Kind = Fixed;

    fn apply(&self, image: Image, _draw: &mut Stream) -> Result<Image> {
        let (height, width) = (image.height(), image.width());
        let size = self.size(&image)?;
        if size == [height, width] {
            return Ok(image);
        }
        resample(&image, [0, 0, height, width], size, self.interpolation)
    }

    fn before_resize(&self, image: Image, _draw: &mut Stream) -> Result<Staged<Image>> {
        Ok(Staged::Resize(image, *self))
    }

    fn check(&self) -> Result<()> {
        self.check_settings()
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
