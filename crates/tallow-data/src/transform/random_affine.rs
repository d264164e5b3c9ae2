//! [`RandomAffine`]: a random rotation, translation, scale and shear.

use tallow_tensor::rng::Stream;

use super::affine::middle;
use super::setting::{check, check_range};
use super::{Affine, Chain, Interpolation, Pipeline, Random, Transform};
use crate::{Image, Result};

/// torchvision's `RandomAffine`; the default changes nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomAffine {
    /// The range of the angle in degrees, clockwise.
    pub degrees: [f64; 2],
    /// The most that the picture is shifted, to either side: shares of its width and of its height.
    pub translate: [f64; 2],
    /// The range of the scale.
    pub scale: [f64; 2],
    /// The ranges of the shear in degrees, along x and along y.
    pub shear: [[f64; 2]; 2],
    /// Nearest by default.
    pub interpolation: Interpolation,
    /// What lies outside the picture.
    pub fill: u8,
}

impl Default for RandomAffine {
    fn default() -> Self {
        Self {
            degrees: [0.; 2],
            translate: [0.; 2],
            scale: [1.; 2],
            shear: [[0.; 2]; 2],
            interpolation: Interpolation::Nearest,
            fill: 0,
        }
    }
}

impl Transform<Image> for RandomAffine {
    type Output = Image;
    type Kind = Random;

    fn apply(&self, image: Image, draw: &mut Stream) -> Result<Image> {
        self.check()?;
        let mut within = |[low, high]: [f64; 2]| draw.uniform_in(low, high);
        let angle = within(self.degrees);
        let mut shift = |share: f64, side: usize| {
            let most = share * side as f64;
            within([-most, most]).round_ties_even()
        };
        let translate = [
            shift(self.translate[0], image.width()),
            shift(self.translate[1], image.height()),
        ];
        let affine = Affine {
            angle,
            translate,
            scale: within(self.scale),
            shear: self.shear.map(within),
            interpolation: self.interpolation,
            fill: self.fill,
        };
        Ok(affine.around(&image, middle(&image)))
    }

    fn check(&self) -> Result<()> {
        check_range("the degrees of RandomAffine", self.degrees, f64::MIN)?;
        check_range("the scale of RandomAffine", self.scale, f64::MIN_POSITIVE)?;
        for shear in self.shear {
            check_range("the shear of RandomAffine", shear, f64::MIN)?;
        }
        check(
            "the translation of RandomAffine",
            self.translate
                .iter()
                .all(|share| (0. ..=1.).contains(share)),
            "shares of width and height from 0 to 1",
            || format!("{:?}", self.translate),
        )
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Turns, shifts, scales and shears at random (torchvision's `RandomAffine`).
    pub fn random_affine(self, affine: RandomAffine) -> Pipeline<Chain<T, RandomAffine>>
    where
        RandomAffine: Transform<T::Output>,
    {
        self.then(affine)
    }
}
