//! [`Affine`]: a fixed rotation, translation, scale and shear.

use tallow_tensor::rng::Stream;

use super::setting::check;
use super::{Chain, Fixed, Interpolation, Pipeline, Transform, warp};
use crate::{Image, Result};

/// torchvision's `functional.affine` around the middle of the picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine {
    /// Degrees, clockwise.
    pub angle: f64,
    /// Pixels to the right and down.
    pub translate: [f64; 2],
    /// 1 leaves the size as it is.
    pub scale: f64,
    /// Degrees along x and y.
    pub shear: [f64; 2],
    /// Nearest by default.
    pub interpolation: Interpolation,
    /// What lies outside the picture.
    pub fill: u8,
}

impl Default for Affine {
    fn default() -> Self {
        Self {
            angle: 0.,
            translate: [0.; 2],
            scale: 1.,
            shear: [0.; 2],
            interpolation: Interpolation::Nearest,
            fill: 0,
        }
    }
}

impl Affine {
    /// The picture around `center` (x, y).
    pub(super) fn around(&self, image: &Image, center: [f64; 2]) -> Image {
        let matrix = warp::inverse(center, self.angle, self.translate, self.scale, self.shear);
        let size = [image.height(), image.width()];
        warp::warp(image, matrix, size, self.interpolation, self.fill)
    }
}

/// The middle of a picture, as x and y.
pub(super) fn middle(image: &Image) -> [f64; 2] {
    [image.width() as f64 / 2., image.height() as f64 / 2.]
}

impl Transform<Image> for Affine {
    type Output = Image;
    type Kind = Fixed;

    fn apply(&self, image: Image, _draw: &mut Stream) -> Result<Image> {
        self.check()?;
        Ok(self.around(&image, middle(&image)))
    }

    fn check(&self) -> Result<()> {
        let finite = [self.angle, self.translate[0], self.translate[1]]
            .iter()
            .chain(&self.shear)
            .all(|value| value.is_finite());
        check(
            "Affine",
            finite && self.scale.is_normal() && self.scale > 0.,
            "finite numbers and a scale above 0",
            || format!("{self:?}"),
        )
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Turns, shifts, scales and shears every picture in the same way (torchvision's `functional.affine`).
    pub fn affine(self, affine: Affine) -> Pipeline<Chain<T, Affine>>
    where
        Affine: Transform<T::Output>,
    {
        self.then(affine)
    }
}
