//! Resampling to another size, with the filter widened for smaller ones (antialiasing) as Pillow does.
//!
//! The arithmetic is that of the crate `fast_image_resize`.

use std::cell::RefCell;

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

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
    window: [usize; 4],
    size: [usize; 2],
    interpolation: Interpolation,
) -> Result<Image> {
    Size(size).check("a resized picture")?;
    let [top, left, height, width] = window;
    if size == [height, width] {
        return Ok(super::setting::crop(image, [top, left], size));
    }
    let algorithm = match interpolation {
        Interpolation::Nearest => ResizeAlg::Nearest,
        Interpolation::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
        Interpolation::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
    };
    // Of the two types of pixel alone: the untyped call would compile the code of all twenty.
    let values = match image.channels() {
        1 => resized::<U8>(image, window, size, algorithm),
        _ => resized::<U8x3>(image, window, size, algorithm),
    };
    let values = values.map_err(|error| Error::Setting {
        what: "a resized picture",
        expected: "sides of at most 2^32 - 1 pixels".into(),
        found: format!(
            "{}x{} to {}x{} ({error})",
            image.height(),
            image.width(),
            size[0],
            size[1]
        ),
    })?;
    Ok(Image::from_parts(values, size, image.channels()))
}

fn resized<P: PixelTrait>(
    image: &Image,
    window: [usize; 4],
    size: [usize; 2],
    algorithm: ResizeAlg,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let side = u32::try_from;
    let [top, left, height, width] = window;
    let whole = TypedImageRef::<P>::from_buffer(
        side(image.width())?,
        side(image.height())?,
        image.values(),
    )?;
    // A view of the window: the filter doesn't see beyond its edges, as if it had been cut out.
    let window =
        TypedCroppedImage::from_ref(&whole, side(left)?, side(top)?, side(width)?, side(height)?)?;
    let mut values = vec![0; size[0] * size[1] * image.channels()];
    let mut target = TypedImage::<P>::from_buffer(side(size[1])?, side(size[0])?, &mut values)?;
    let options = ResizeOptions::new().resize_alg(algorithm);
    RESIZER.with_borrow_mut(|resizer| resizer.resize_typed(&window, &mut target, &options))?;
    Ok(values)
}
