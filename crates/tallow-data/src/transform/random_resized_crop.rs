//! [`RandomResizedCrop`]: a window of random area and shape, at a fixed size.

use tallow_tensor::rng::Stream;

use super::resample::{Interpolation, resample};
use super::setting::{Size, check_range};
use super::{Chain, Pipeline, Random, Transform};
use crate::{Image, Result};

/// torchvision's `RandomResizedCrop` (Szegedy et al., 2014).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomResizedCrop {
    /// The size of the result.
    pub size: Size,
    /// The share of the picture's area that the window has; 0.08 to 1 by default.
    pub scale: [f64; 2],
    /// Width by height of the window; 3/4 to 4/3 by default.
    pub ratio: [f64; 2],
    /// How it is resized; bilinear by default.
    pub interpolation: Interpolation,
}

impl RandomResizedCrop {
    /// A square for one number, height and width for two.
    pub fn new(size: impl Into<Size>) -> Self {
        Self {
            size: size.into(),
            scale: [0.08, 1.],
            ratio: [3. / 4., 4. / 3.],
            interpolation: Interpolation::Bilinear,
        }
    }

    /// Top, left, height and width of a window.
    fn draw(&self, image: &Image, draw: &mut Stream) -> [usize; 4] {
        let (height, width) = (image.height(), image.width());
        let area = (height * width) as f64;
        for _ in 0..10 {
            let target = area * draw.uniform_in(self.scale[0], self.scale[1]);
            let ratio = draw
                .uniform_in(self.ratio[0].ln(), self.ratio[1].ln())
                .exp();
            let w = (target * ratio).sqrt().round_ties_even() as usize;
            let h = (target / ratio).sqrt().round_ties_even() as usize;
            if (1..=width).contains(&w) && (1..=height).contains(&h) {
                let top = draw.below((height - h) as u64 + 1) as usize;
                let left = draw.below((width - w) as u64 + 1) as usize;
                return [top, left, h, w];
            }
        }
        self.middle(height, width)
    }

    /// The largest window in the middle whose shape is allowed, for pictures too narrow for what was drawn.
    fn middle(&self, height: usize, width: usize) -> [usize; 4] {
        let ratio = width as f64 / height as f64;
        let (h, w) = if ratio < self.ratio[0] {
            (
                (width as f64 / self.ratio[0]).round_ties_even() as usize,
                width,
            )
        } else if ratio > self.ratio[1] {
            (
                height,
                (height as f64 * self.ratio[1]).round_ties_even() as usize,
            )
        } else {
            (height, width)
        };
        let (h, w) = (h.clamp(1, height), w.clamp(1, width));
        [(height - h) / 2, (width - w) / 2, h, w]
    }
}

impl Transform<Image> for RandomResizedCrop {
    type Output = Image;
    type Kind = Random;

    fn apply(&self, image: Image, draw: &mut Stream) -> Result<Image> {
        self.check()?;
        let window = self.draw(&image, draw);
        resample(&image, window, self.size.0, self.interpolation)
    }

    fn check(&self) -> Result<()> {
        self.size.check("RandomResizedCrop")?;
        check_range("the scale of RandomResizedCrop", self.scale, 0.)?;
        check_range(
            "the ratio of RandomResizedCrop",
            self.ratio,
            f64::MIN_POSITIVE,
        )
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Cuts out a window of random area (8 to 100 %) and shape (3:4 to 4:3) and resizes it (torchvision's
    /// `RandomResizedCrop`). For other ranges, `then` a [`RandomResizedCrop`].
    pub fn random_resized_crop(self, size: impl Into<Size>) -> Pipeline<Chain<T, RandomResizedCrop>>
    where
        RandomResizedCrop: Transform<T::Output>,
    {
        self.then(RandomResizedCrop::new(size))
    }
}
