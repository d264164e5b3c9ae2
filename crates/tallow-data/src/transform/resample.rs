//! Resampling to another size, with the filter widened for smaller ones (antialiasing) as Pillow does.
//!
//! The arithmetic is that of the crate `fast_image_resize`.

use std::cell::RefCell;

use fast_image_resize::images::{CroppedImage, Image as Target, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::setting::Size;
use crate::{Error, Image, Result};

/// How values between pixels come about (torchvision's `InterpolationMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interpolation {
    /// The value of the nearest pixel.
    Nearest,
    /// A triangle over the neighbouring pixels.
    #[default]
    Bilinear,
    /// Keys' cubic with a = -0.5, over four pixels each way.
    Bicubic,
}

thread_local! {
    /// Keeps its tables of coefficients and its intermediate rows from picture to picture.
    static RESIZER: RefCell<Resizer> = RefCell::new(Resizer::new());
}

/// The window (top, left, height, width) of a picture, at another size.
pub(super) fn resample(
    image: &Image,
    [top, left, height, width]: [usize; 4],
    size: [usize; 2],
    interpolation: Interpolation,
) -> Result<Image> {
    Size(size).check("a resized picture")?;
    if size == [height, width] {
        return Ok(super::setting::crop(image, [top, left], size));
    }
    let failed = |error: &dyn std::fmt::Display| Error::Setting {
        what: "a resized picture",
        expected: "sides of at most 2^32 - 1 pixels".into(),
        found: format!(
            "{}x{} to {}x{} ({error})",
            image.height(),
            image.width(),
            size[0],
            size[1]
        ),
    };
    let side = |side: usize| u32::try_from(side).map_err(|error| failed(&error));
    let pixel = match image.channels() {
        1 => PixelType::U8,
        _ => PixelType::U8x3,
    };
    let algorithm = match interpolation {
        Interpolation::Nearest => ResizeAlg::Nearest,
        Interpolation::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
        Interpolation::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
    };
    let whole = ImageRef::new(
        side(image.width())?,
        side(image.height())?,
        image.values(),
        pixel,
    )
    .map_err(|error| failed(&error))?;
    // A view of the window: the filter doesn't see beyond its edges, as if it had been cut out.
    let window = CroppedImage::new(&whole, side(left)?, side(top)?, side(width)?, side(height)?)
        .map_err(|error| failed(&error))?;
    let mut target = Target::new(side(size[1])?, side(size[0])?, pixel);
    let options = ResizeOptions::new().resize_alg(algorithm);
    RESIZER
        .with_borrow_mut(|resizer| resizer.resize(&window, &mut target, &options))
        .map_err(|error| failed(&error))?;
    Ok(Image::from_parts(target.into_vec(), size, image.channels()))
}
