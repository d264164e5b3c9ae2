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

impl Interpolation {
    fn algorithm(self) -> ResizeAlg {
        match self {
            Self::Nearest => ResizeAlg::Nearest,
            Self::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
            Self::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
        }
    }
}

/// The window (top, left, height, width) of a picture, at another size.
///
/// The filter doesn't see beyond the window's edges, as if it had been cut out.
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
    let options = ResizeOptions::new().resize_alg(interpolation.algorithm());
    resized(image, window, size, &options)
}

/// The part (top, left) of `part` pixels of a picture that would be resized to `size`, without making the others: the same
/// pixels, within 1 of 255, since weights are rounded from other fractions.
pub(super) fn resample_part(
    image: &Image,
    size: [usize; 2],
    start: [usize; 2],
    part: [usize; 2],
    interpolation: Interpolation,
) -> Result<Image> {
    let whole = [image.height(), image.width()];
    if interpolation == Interpolation::Nearest || size == whole {
        let image = resample(image, [0, 0, whole[0], whole[1]], size, interpolation)?;
        return Ok(super::setting::crop(&image, start, part));
    }
    Size(part).check("a resized picture")?;
    // Where the part lies in the picture as it is, in fractions of pixels.
    let place = |axis: usize, at: usize| (at as f64 * whole[axis] as f64) / size[axis] as f64;
    let (top, left) = (place(0, start[0]), place(1, start[1]));
    let height = place(0, part[0]).min(whole[0] as f64 - top);
    let width = place(1, part[1]).min(whole[1] as f64 - left);
    let options = ResizeOptions::new()
        .resize_alg(interpolation.algorithm())
        .crop(left, top, width, height);
    resized(image, [0, 0, whole[0], whole[1]], part, &options)
}

fn resized(
    image: &Image,
    window: [usize; 4],
    size: [usize; 2],
    options: &ResizeOptions,
) -> Result<Image> {
    // Of the two types of pixel alone: the untyped call would compile the code of all twenty.
    let values = match image.channels() {
        1 => resized_values::<U8>(image, window, size, options),
        _ => resized_values::<U8x3>(image, window, size, options),
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

fn resized_values<P: PixelTrait>(
    image: &Image,
    [top, left, height, width]: [usize; 4],
    size: [usize; 2],
    options: &ResizeOptions,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let side = u32::try_from;
    let whole = TypedImageRef::<P>::from_buffer(
        side(image.width())?,
        side(image.height())?,
        image.values(),
    )?;
    let window =
        TypedCroppedImage::from_ref(&whole, side(left)?, side(top)?, side(width)?, side(height)?)?;
    let mut values = vec![0; size[0] * size[1] * image.channels()];
    let mut target = TypedImage::<P>::from_buffer(side(size[1])?, side(size[0])?, &mut values)?;
    RESIZER.with_borrow_mut(|resizer| resizer.resize_typed(&window, &mut target, options))?;
    Ok(values)
}
