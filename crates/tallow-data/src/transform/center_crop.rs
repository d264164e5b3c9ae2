//! [`CenterCrop`]: the middle of a picture.

use tallow_tensor::rng::Stream;

use super::setting::{Size, check_crop, crop};
use super::{Chain, Fixed, Pipeline, Transform};
use crate::{Image, Result};

/// torchvision's `CenterCrop`, except that a crop larger than its picture is an error and not a black border.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CenterCrop {
    /// The size of the crop.
    pub size: Size,
}

impl CenterCrop {
    /// A square for one number, height and width for two.
    pub fn new(size: impl Into<Size>) -> Self {
        Self { size: size.into() }
    }
}

/// Half of a margin, rounded as Python does: halves to the even number.
fn half(margin: usize) -> usize {
    margin / 2 + usize::from(margin % 4 == 3)
}

impl Transform<Image> for CenterCrop {
    type Output = Image;
    type Kind = Fixed;

    fn apply(&self, image: Image, _draw: &mut Stream) -> Result<Image> {
        self.check()?;
        check_crop("CenterCrop", self.size, &image)?;
        let Size([height, width]) = self.size;
        let margins = [image.height() - height, image.width() - width];
        if margins == [0, 0] {
            return Ok(image);
        }
        Ok(crop(&image, margins.map(half), self.size.0))
    }

    fn check(&self) -> Result<()> {
        self.size.check("CenterCrop")
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Cuts out the middle (torchvision's `CenterCrop`); a picture that is smaller is an error.
    pub fn center_crop(self, size: impl Into<Size>) -> Pipeline<Chain<T, CenterCrop>>
    where
        CenterCrop: Transform<T::Output>,
    {
        self.then(CenterCrop::new(size))
    }
}
