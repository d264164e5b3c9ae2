//! [`CenterCrop`]: the middle of a picture.

use tallow_tensor::rng::Stream;

use super::setting::{Size, check_crop, crop};
use super::{Chain, Fixed, Pipeline, Staged, Transform};
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

impl CenterCrop {
    /// Where the crop begins in a picture of this size.
    fn start(&self, size: [usize; 2]) -> Result<[usize; 2]> {
        self.check_size()?;
        check_crop("CenterCrop", self.size, size)?;
        Ok([0, 1].map(|axis| half(size[axis] - self.size.0[axis])))
    }

    fn check_size(&self) -> Result<()> {
        self.size.check("CenterCrop")
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
        let size = [image.height(), image.width()];
        let start = self.start(size)?;
        if size == self.size.0 {
            return Ok(image);
        }
        Ok(crop(&image, start, self.size.0))
    }

    /// Behind a resizing, only the part that stays is made.
    fn apply_after<I, F>(&self, first: &F, input: I, draw: &mut Stream) -> Result<Image>
    where
        F: Transform<I, Output = Image>,
    {
        match first.before_resize(input, draw)? {
            Staged::Done(image) => self.apply(image, draw),
            Staged::Resize(image, resize) => {
                let size = resize.size(&image)?;
                resize.part(image, size, self.start(size)?, self.size.0)
            }
        }
    }

    fn check(&self) -> Result<()> {
        self.check_size()
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
