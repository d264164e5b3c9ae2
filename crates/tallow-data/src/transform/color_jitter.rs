//! [`ColorJitter`]: random brightness, contrast, saturation and hue.

use tallow_tensor::rng::Stream;

use super::setting::check;
use super::{Chain, Pipeline, Random, Transform, functional};
use crate::{Image, Result};

/// torchvision's `ColorJitter`; the default changes nothing.
///
/// The first three draw a factor of `[max(0, 1 - x), 1 + x)`, hue one of `[-x, x)`; they are applied in random order.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ColorJitter {
    /// 0 or more.
    pub brightness: f64,
    /// 0 or more.
    pub contrast: f64,
    /// 0 or more.
    pub saturation: f64,
    /// 0 to 0.5, in turns of the circle of colours.
    pub hue: f64,
}

impl Transform<Image> for ColorJitter {
    type Output = Image;
    type Kind = Random;

    fn apply(&self, mut image: Image, draw: &mut Stream) -> Result<Image> {
        self.check()?;
        let mut order = [0, 1, 2, 3];
        draw.shuffle(&mut order);
        let mut factor = |strength: f64| {
            (strength > 0.).then(|| draw.uniform_in((1. - strength).max(0.), 1. + strength))
        };
        let factors = [self.brightness, self.contrast, self.saturation].map(&mut factor);
        let turn = (self.hue > 0.).then(|| draw.uniform_in(-self.hue, self.hue));
        let [brightness, contrast, saturation] = factors;
        for change in order {
            match (change, brightness, contrast, saturation, turn) {
                (0, Some(factor), ..) => functional::adjust_brightness(&mut image, factor),
                (1, _, Some(factor), ..) => functional::adjust_contrast(&mut image, factor),
                (2, _, _, Some(factor), _) => functional::adjust_saturation(&mut image, factor),
                (3, .., Some(turn)) => functional::adjust_hue(&mut image, turn),
                _ => {}
            }
        }
        Ok(image)
    }

    fn check(&self) -> Result<()> {
        let strengths = [self.brightness, self.contrast, self.saturation];
        check(
            "ColorJitter",
            strengths.iter().all(|s| s.is_finite() && *s >= 0.) && (0. ..=0.5).contains(&self.hue),
            "brightness, contrast and saturation of 0 or more, and a hue from 0 to 0.5",
            || format!("{self:?}"),
        )
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Changes brightness, contrast, saturation and hue at random (torchvision's `ColorJitter`).
    pub fn color_jitter(self, jitter: ColorJitter) -> Pipeline<Chain<T, ColorJitter>>
    where
        ColorJitter: Transform<T::Output>,
    {
        self.then(jitter)
    }
}
