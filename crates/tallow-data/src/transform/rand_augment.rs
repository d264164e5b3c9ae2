//! [`RandAugment`]: a few random operations of one strength.

use tallow_tensor::rng::Stream;

use super::auto_augment::{Operation, spaced};
use super::setting::check;
use super::{Chain, Interpolation, Pipeline, Random, Transform};
use crate::{Image, Result};

/// torchvision's `RandAugment` (Cubuk et al., 2019).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandAugment {
    /// How many operations one after the other; 2 by default.
    pub num_ops: usize,
    /// Their strength, below `num_magnitude_bins`; 9 by default.
    pub magnitude: usize,
    /// 31 by default.
    pub num_magnitude_bins: usize,
    /// Nearest by default.
    pub interpolation: Interpolation,
    /// What lies outside the picture.
    pub fill: u8,
}

impl Default for RandAugment {
    fn default() -> Self {
        Self {
            num_ops: 2,
            magnitude: 9,
            num_magnitude_bins: 31,
            interpolation: Interpolation::Nearest,
            fill: 0,
        }
    }
}

impl RandAugment {
    /// The strength of an operation in its own unit.
    fn strength(&self, operation: Operation, image: &Image) -> f64 {
        use Operation::*;
        let (bin, bins) = (self.magnitude, self.num_magnitude_bins);
        let up_to = |most: f64| spaced(0., most, bin, bins);
        match operation {
            ShearX | ShearY => up_to(0.3),
            TranslateX => up_to(150. / 331. * image.width() as f64),
            TranslateY => up_to(150. / 331. * image.height() as f64),
            Rotate => up_to(30.),
            Brightness | Color | Contrast | Sharpness => up_to(0.9),
            Posterize => 8. - up_to(4.).round_ties_even(),
            Solarize => spaced(1., 0., bin, bins),
            Identity | AutoContrast | Equalize => 0.,
        }
    }
}

impl Transform<Image> for RandAugment {
    type Output = Image;
    type Kind = Random;

    fn apply(&self, mut image: Image, draw: &mut Stream) -> Result<Image> {
        self.check()?;
        for _ in 0..self.num_ops {
            let operation = Operation::ALL[draw.below(Operation::ALL.len() as u64) as usize];
            let mut magnitude = self.strength(operation, &image);
            if operation.signed() && draw.chance(0.5) {
                magnitude = -magnitude;
            }
            image = operation.apply(image, magnitude, self.interpolation, self.fill)?;
        }
        Ok(image)
    }

    fn check(&self) -> Result<()> {
        check(
            "RandAugment",
            self.magnitude < self.num_magnitude_bins && self.num_ops <= 1_000,
            "a magnitude below the number of bins, and at most 1000 operations",
            || format!("{self:?}"),
        )
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Applies `num_ops` random operations of strength `magnitude` of 30 (torchvision's `RandAugment`; its defaults are 2
    /// and 9).
    pub fn rand_augment(self, num_ops: usize, magnitude: usize) -> Pipeline<Chain<T, RandAugment>>
    where
        RandAugment: Transform<T::Output>,
    {
        self.then(RandAugment {
            num_ops,
            magnitude,
            ..RandAugment::default()
        })
    }
}
