//! [`Rotation`] by a fixed angle, and [`RandomRotation`].

use tallow_tensor::rng::Stream;

use super::setting::{Size, check, check_range};
use super::{Chain, Fixed, Interpolation, Pipeline, Random, Transform, warp};
use crate::{Image, Result};

/// torchvision's `functional.rotate`, around the middle of the picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotation {
    /// Degrees, counter-clockwise.
    pub angle: f64,
    /// Nearest by default.
    pub interpolation: Interpolation,
    /// Makes the result as large as the turned picture.
    pub expand: bool,
    /// What lies outside the picture.
    pub fill: u8,
}

impl Rotation {
    /// By `angle` degrees counter-clockwise; the size stays, and what comes in is black.
    pub fn new(angle: f64) -> Self {
        Self {
            angle,
            interpolation: Interpolation::Nearest,
            expand: false,
            fill: 0,
        }
    }
}

impl Transform<Image> for Rotation {
    type Output = Image;
    type Kind = Fixed;

    fn apply(&self, image: Image, _draw: &mut Stream) -> Result<Image> {
        self.check()?;
        let size = [image.height(), image.width()];
        let (matrix, size) = warp::rotation(self.angle, size, self.expand);
        Size(size).check("Rotation")?;
        Ok(warp::warp(
            &image,
            matrix,
            size,
            self.interpolation,
            self.fill,
        ))
    }

    fn check(&self) -> Result<()> {
        check("Rotation", self.angle.is_finite(), "a finite angle", || {
            self.angle.to_string()
        })
    }
}

/// torchvision's `RandomRotation`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomRotation {
    /// The range of the angle in degrees, counter-clockwise.
    pub degrees: [f64; 2],
    /// Nearest by default.
    pub interpolation: Interpolation,
    /// Makes the result as large as the turned picture.
    pub expand: bool,
    /// What lies outside the picture.
    pub fill: u8,
}

impl RandomRotation {
    /// By up to `degrees` either way.
    pub fn new(degrees: f64) -> Self {
        Self {
            degrees: [-degrees, degrees],
            interpolation: Interpolation::Nearest,
            expand: false,
            fill: 0,
        }
    }
}

impl Transform<Image> for RandomRotation {
    type Output = Image;
    type Kind = Random;

    fn apply(&self, image: Image, draw: &mut Stream) -> Result<Image> {
        self.check()?;
        let rotation = Rotation {
            angle: draw.uniform_in(self.degrees[0], self.degrees[1]),
            interpolation: self.interpolation,
            expand: self.expand,
            fill: self.fill,
        };
        rotation.apply(image, draw)
    }

    fn check(&self) -> Result<()> {
        check_range("the degrees of RandomRotation", self.degrees, f64::MIN)
    }
}

impl<T: Transform<Image>> Pipeline<T> {
    /// Turns every picture by `angle` degrees counter-clockwise (torchvision's `functional.rotate`).
    pub fn rotation(self, angle: f64) -> Pipeline<Chain<T, Rotation>>
    where
        Rotation: Transform<T::Output>,
    {
        self.then(Rotation::new(angle))
    }

    /// Turns by up to `degrees` either way (torchvision's `RandomRotation`).
    pub fn random_rotation(self, degrees: f64) -> Pipeline<Chain<T, RandomRotation>>
    where
        RandomRotation: Transform<T::Output>,
    {
        self.then(RandomRotation::new(degrees))
    }
}
