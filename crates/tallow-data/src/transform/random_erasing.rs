//! [`RandomErasing`]: a rectangle struck out by chance.

use tallow_tensor::rng::Stream;

use super::forms::Numbers;
use super::setting::{check_probability, check_range};
use super::{Chain, FloatImage, NormalizedImage, Pipeline, Random, Transform};
use crate::{Image, Result};

/// What the rectangle is filled with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Erase {
    /// One value for all channels.
    Value(f32),
    /// Standard normal numbers.
    Random,
}

/// torchvision's `RandomErasing` (Zhong et al., 2017), on numbers before or after `normalize`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomErasing {
    /// How often; 0.5 by default.
    pub p: f64,
    /// The share of the area; 0.02 to 0.33 by default.
    pub scale: [f64; 2],
    /// Height by width; 0.3 to 3.3 by default.
    pub ratio: [f64; 2],
    /// The filling; 0 by default.
    pub value: Erase,
}

impl Default for RandomErasing {
    fn default() -> Self {
        Self {
            p: 0.5,
            scale: [0.02, 0.33],
            ratio: [0.3, 3.3],
            value: Erase::Value(0.),
        }
    }
}

impl RandomErasing {
    fn erase(&self, values: &mut [f32], [_, height, width]: [usize; 3], draw: &mut Stream) {
        if !draw.chance(self.p) {
            return;
        }
        let Some([top, left, h, w]) = self.rectangle(height, width, draw) else {
            return;
        };
        for plane in values.chunks_exact_mut(height * width) {
            for row in plane.chunks_exact_mut(width).skip(top).take(h) {
                match self.value {
                    Erase::Value(value) => row[left..left + w].fill(value),
                    Erase::Random => row[left..left + w].fill_with(|| draw.normal() as f32),
                }
            }
        }
    }

    /// Top, left, height and width; nothing where ten attempts give none that fits.
    fn rectangle(&self, height: usize, width: usize, draw: &mut Stream) -> Option<[usize; 4]> {
        let area = (height * width) as f64;
        let [low, high] = self.ratio.map(f64::ln);
        for _ in 0..10 {
            let target = area * draw.uniform_in(self.scale[0], self.scale[1]);
            let ratio = draw.uniform_in(low, high).exp();
            let h = (target * ratio).sqrt().round_ties_even() as usize;
            let w = (target / ratio).sqrt().round_ties_even() as usize;
            if h < height && w < width {
                let top = draw.below((height - h) as u64 + 1) as usize;
                let left = draw.below((width - w) as u64 + 1) as usize;
                return Some([top, left, h, w]);
            }
        }
        None
    }

    fn check_settings(&self) -> Result<()> {
        check_probability("RandomErasing", self.p)?;
        check_range("the scale of RandomErasing", self.scale, 0.)?;
        check_range("the ratio of RandomErasing", self.ratio, f64::MIN_POSITIVE)
    }

    fn apply_to<I: Numbers>(&self, mut image: I, draw: &mut Stream) -> Result<I> {
        self.check_settings()?;
        let (values, shape) = image.parts();
        self.erase(values, shape, draw);
        Ok(image)
    }
}

impl Transform<FloatImage> for RandomErasing {
    type Output = FloatImage;
    type Kind = Random;

    fn apply(&self, image: FloatImage, draw: &mut Stream) -> Result<FloatImage> {
        self.apply_to(image, draw)
    }

    fn check(&self) -> Result<()> {
        self.check_settings()
    }
}

impl Transform<NormalizedImage> for RandomErasing {
    type Output = NormalizedImage;
    type Kind = Random;

    fn apply(&self, image: NormalizedImage, draw: &mut Stream) -> Result<NormalizedImage> {
        self.apply_to(image, draw)
    }

    fn check(&self) -> Result<()> {
        self.check_settings()
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Strikes out a rectangle by chance (torchvision's `RandomErasing`), before or after `normalize`.
    pub fn random_erasing(self, erasing: RandomErasing) -> Pipeline<Chain<T, RandomErasing>>
    where
        RandomErasing: Transform<T::Output>,
    {
        self.then(erasing)
    }
}
