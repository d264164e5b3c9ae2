//! The operations that [`RandAugment`](super::RandAugment) and [`TrivialAugmentWide`](super::TrivialAugmentWide) choose from.

use tallow_tensor::rng::Stream;

use super::affine::middle;
use super::{Affine, Interpolation, Rotation, Transform, functional};
use crate::{Image, Result};

/// An operation of the automatic augmentations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
}

impl Operation {
    pub(super) const ALL: [Self; 14] = [
        Self::Identity,
        Self::ShearX,
        Self::ShearY,
        Self::TranslateX,
        Self::TranslateY,
        Self::Rotate,
        Self::Brightness,
        Self::Color,
        Self::Contrast,
        Self::Sharpness,
        Self::Posterize,
        Self::Solarize,
        Self::AutoContrast,
        Self::Equalize,
    ];

    /// Whether its magnitude may be turned around.
    pub(super) fn signed(self) -> bool {
        use Operation::*;
        matches!(
            self,
            ShearX
                | ShearY
                | TranslateX
                | TranslateY
                | Rotate
                | Brightness
                | Color
                | Contrast
                | Sharpness
        )
    }

    /// Applies it; the unit of `magnitude` is the operation's own.
    pub(super) fn apply(
        self,
        mut image: Image,
        magnitude: f64,
        interpolation: Interpolation,
        fill: u8,
    ) -> Result<Image> {
        let affine = Affine {
            interpolation,
            fill,
            ..Affine::default()
        };
        let shear = magnitude.atan().to_degrees();
        match self {
            Self::Identity => {}
            Self::ShearX => {
                image = Affine {
                    shear: [shear, 0.],
                    ..affine
                }
                .around(&image, [0., 0.]);
            }
            Self::ShearY => {
                image = Affine {
                    shear: [0., shear],
                    ..affine
                }
                .around(&image, [0., 0.]);
            }
            Self::TranslateX => {
                let translate = [magnitude.trunc(), 0.];
                image = Affine {
                    translate,
                    ..affine
                }
                .around(&image, middle(&image));
            }
            Self::TranslateY => {
                let translate = [0., magnitude.trunc()];
                image = Affine {
                    translate,
                    ..affine
                }
                .around(&image, middle(&image));
            }
            Self::Rotate => {
                let rotation = Rotation {
                    interpolation,
                    fill,
                    ..Rotation::new(magnitude)
                };
                return rotation.apply(image, &mut Stream::new(0));
            }
            Self::Brightness => functional::adjust_brightness(&mut image, 1. + magnitude),
            Self::Color => functional::adjust_saturation(&mut image, 1. + magnitude),
            Self::Contrast => functional::adjust_contrast(&mut image, 1. + magnitude),
            Self::Sharpness => functional::adjust_sharpness(&mut image, 1. + magnitude),
            Self::Posterize => functional::posterize(&mut image, magnitude as u32),
            Self::Solarize => functional::solarize(&mut image, magnitude * 255.),
            Self::AutoContrast => functional::autocontrast(&mut image),
            Self::Equalize => functional::equalize(&mut image),
        }
        Ok(image)
    }
}

/// The `bin`-th of `bins` evenly spaced numbers from `low` to `high`.
pub(super) fn spaced(low: f64, high: f64, bin: usize, bins: usize) -> f64 {
    match bins {
        0 | 1 => low,
        _ => low + (high - low) * bin as f64 / (bins - 1) as f64,
    }
}
