//! [`TrivialAugmentWide`]: one random operation of random strength.

use tallow_tensor::rng::Stream;

use super::auto_augment::{Operation, spaced};
use super::setting::check;
use super::{Chain, Interpolation, Pipeline, Random, Transform};
use crate::{Image, Result};

/// torchvision's `TrivialAugmentWide` (Müller and Hutter, 2021).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrivialAugmentWide {
    /// 31 by default.
    pub num_magnitude_bins: usize,
    /// Nearest by default.
    pub interpolation: Interpolation,
    /// What lies outside the picture.
    pub fill: u8,
}

impl Default for TrivialAugmentWide {
    fn default() -> Self {
        Self {
            num_magnitude_bins: 31,
            interpolation: Interpolation::Nearest,
            fill: 0,
        }
    }
}

/// The strength of an operation in its own unit.
fn strength(operation: Operation, bin: usize, bins: usize) -> f64 {
    use Operation::*;
    let up_to = |most: f64| spaced(0., most, bin, bins);
    match operation {
        ShearX | ShearY | Brightness | Color | Contrast | Sharpness => up_to(0.99),
        TranslateX | TranslateY => up_to(32.),
        Rotate => up_to(135.),
        Posterize => 8. - up_to(6.).round_ties_even(),
        Solarize => spaced(1., 0., bin, bins),
        Identity | AutoContrast | Equalize => 0.,
    }
}

impl Transform<Image> for TrivialAugmentWide {
    type Output = Image;
    type Kind = Random;

    fn apply(&self, image: Image, draw: &mut Stream) -> Result<Image> {
        self.check()?;
        let operation = Operation::ALL[draw.below(Operation::ALL.len() as u64) as usize];
        let bins = self.num_magnitude_bins;
        let mut magnitude = strength(operation, draw.below(bins as u64) as usize, bins);
        if operation.signed() && draw.chance(0.5) {
            magnitude = -magnitude;
        }
        operation.apply(image, magnitude, self.interpolation, self.fill)
    }

    fn check(&self) -> Result<()> {
        check(
            "TrivialAugmentWide",
            self.num_magnitude_bins > 0,
            "at least 1 bin of magnitudes",
            || "0".into(),
        )
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Applies one random operation of random strength (torchvision's `TrivialAugmentWide`).
    pub fn trivial_augment_wide(self) -> Pipeline<Chain<T, TrivialAugmentWide>>
    where
        TrivialAugmentWide: Transform<T::Output>,
    {
        self.then(TrivialAugmentWide::default())
    }
}
