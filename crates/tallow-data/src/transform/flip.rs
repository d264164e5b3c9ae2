//! [`RandomHorizontalFlip`] and [`RandomVerticalFlip`]: pictures mirrored by chance.

use tallow_tensor::rng::Stream;

use super::setting::check_probability;
use super::{Chain, Pipeline, Random, Transform};
use crate::{Image, Result};

/// torchvision's `RandomHorizontalFlip`: left becomes right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomHorizontalFlip {
    /// How often.
    pub p: f64,
}

/// torchvision's `RandomVerticalFlip`: top becomes bottom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomVerticalFlip {
    /// How often.
    pub p: f64,
}

impl Transform<Image> for RandomHorizontalFlip {
    type Output = Image;
    type Kind = Random;

    fn apply(&self, mut image: Image, draw: &mut Stream) -> Result<Image> {
        self.check()?;
        if draw.chance(self.p) {
            let (width, channels) = (image.width(), image.channels());
            for row in image.values_mut().chunks_exact_mut(width * channels) {
                match channels {
                    1 => row.reverse(),
                    _ => row.as_chunks_mut::<3>().0.reverse(),
                }
            }
        }
        Ok(image)
    }

    fn check(&self) -> Result<()> {
        check_probability("RandomHorizontalFlip", self.p)
    }
}

impl Transform<Image> for RandomVerticalFlip {
    type Output = Image;
    type Kind = Random;

    fn apply(&self, mut image: Image, draw: &mut Stream) -> Result<Image> {
        self.check()?;
        if draw.chance(self.p) {
            let stride = image.width() * image.channels();
            let height = image.height();
            let (upper, lower) = image.values_mut().split_at_mut(height / 2 * stride);
            let pairs = upper
                .chunks_exact_mut(stride)
                .zip(lower.chunks_exact_mut(stride).rev());
            for (above, below) in pairs {
                above.swap_with_slice(below);
            }
        }
        Ok(image)
    }

    fn check(&self) -> Result<()> {
        check_probability("RandomVerticalFlip", self.p)
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Mirrors left to right with probability `p` (torchvision's `RandomHorizontalFlip`).
    pub fn random_horizontal_flip(self, p: f64) -> Pipeline<Chain<T, RandomHorizontalFlip>>
    where
        RandomHorizontalFlip: Transform<T::Output>,
    {
        self.then(RandomHorizontalFlip { p })
    }

    /// Mirrors top to bottom with probability `p` (torchvision's `RandomVerticalFlip`).
    pub fn random_vertical_flip(self, p: f64) -> Pipeline<Chain<T, RandomVerticalFlip>>
    where
        RandomVerticalFlip: Transform<T::Output>,
    {
        self.then(RandomVerticalFlip { p })
    }
}
