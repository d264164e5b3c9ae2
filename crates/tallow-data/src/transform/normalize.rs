//! [`Normalize`] as a step of a pipeline.

use tallow_tensor::rng::Stream;

use super::{Chain, Fixed, FloatImage, NormalizedImage, Pipeline, Transform};
use crate::{Image, Normalize, Result};

/// torchvision's `Normalize`: `(value - mean) / std`, channel by channel, in place.
impl Transform<FloatImage> for Normalize {
    type Output = NormalizedImage;
    type Kind = Fixed;

    fn apply(&self, image: FloatImage, _draw: &mut Stream) -> Result<NormalizedImage> {
        Ok(NormalizedImage(image.0.normalized(self)?))
    }

    fn check(&self) -> Result<()> {
        // Of how many channels pictures are is not known yet; as many as were given, then.
        self.each(self.mean.len().max(self.std.len())).map(drop)
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// From numbers of 0 to 1 to numbers of about mean 0 and standard deviation 1 (torchvision's `Normalize`).
    pub fn normalize(self, normalize: Normalize) -> Pipeline<Chain<T, Normalize>>
    where
        Normalize: Transform<T::Output>,
    {
        self.then(normalize)
    }
}
