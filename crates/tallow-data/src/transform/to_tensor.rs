//! [`ToTensor`]: from bytes `[H, W, C]` to numbers `[C, H, W]`.

use tallow_tensor::rng::Stream;

use super::forms::Floats;
use super::{Chain, Fixed, FloatImage, Pipeline, Transform};
use crate::{Image, Result};

/// torchvision's `ToTensor` (in v2 `ToImage` and `ToDtype(float32, scale=True)`): values from 0 to 1, channels first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToTensor;

impl Transform<Image> for ToTensor {
    type Output = FloatImage;
    type Kind = Fixed;

    fn apply(&self, image: Image, _draw: &mut Stream) -> Result<FloatImage> {
        Ok(FloatImage(Floats::scaled(image)))
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// From bytes `[H, W, C]` to floats `[C, H, W]` from 0 to 1 (torchvision's `ToTensor`).
    pub fn to_tensor(self) -> Pipeline<Chain<T, ToTensor>>
    where
        ToTensor: Transform<T::Output>,
    {
        self.then(ToTensor)
    }
}
