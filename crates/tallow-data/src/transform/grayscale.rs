//! [`RandomGrayscale`]: pictures without colour by chance.

use tallow_tensor::rng::Stream;

use super::setting::check_probability;
use super::{Chain, Pipeline, Random, Transform, functional};
use crate::{Image, Result};

/// torchvision's `RandomGrayscale`; the number of channels stays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomGrayscale {
    /// How often.
    pub p: f64,
}

impl Transform<Image> for RandomGrayscale {
    type Output = Image;
    type Kind = Random;

    fn apply(&self, mut image: Image, draw: &mut Stream) -> Result<Image> {
        self.check()?;
        if draw.chance(self.p) {
            functional::rgb_to_grayscale(&mut image);
        }
        Ok(image)
    }

    fn check(&self) -> Result<()> {
        check_probability("RandomGrayscale", self.p)
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Takes the colour out with probability `p` (torchvision's `RandomGrayscale`).
    pub fn random_grayscale(self, p: f64) -> Pipeline<Chain<T, RandomGrayscale>>
    where
        RandomGrayscale: Transform<T::Output>,
    {
        self.then(RandomGrayscale { p })
    }
}
