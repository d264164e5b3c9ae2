//! The orientation in EXIF data: pictures turned and mirrored.

use image::metadata::Orientation;

use crate::Image;

/// The orientation that raw EXIF data (from the TIFF header on) ask for.
pub(super) fn from_exif(exif: &[u8]) -> Orientation {
    Orientation::from_exif_chunk(exif).unwrap_or(Orientation::NoTransforms)
}

/// Turns or mirrors a picture.
pub(super) fn apply(image: Image, orientation: Orientation) -> Image {
    // Where a pixel of the result comes from: whether rows and columns change places, then which run backwards.
    let (transposed, down, right) = match orientation {
        Orientation::NoTransforms => return image,
        Orientation::FlipHorizontal => (false, true, false),
        Orientation::Rotate180 => (false, false, false),
        Orientation::FlipVertical => (false, false, true),
        Orientation::Rotate90FlipH => (true, true, true),
        Orientation::Rotate90 => (true, false, true),
        Orientation::Rotate270FlipH => (true, false, false),
        Orientation::Rotate270 => (true, true, false),
    };
    let (height, width, channels) = (image.height(), image.width(), image.channels());
    let size = if transposed {
        [width, height]
    } else {
        [height, width]
    };
    let mut values = Vec::with_capacity(image.values().len());
    for y in 0..size[0] {
        for x in 0..size[1] {
            let (row, column) = if transposed { (x, y) } else { (y, x) };
            let row = if down { row } else { height - 1 - row };
            let column = if right { column } else { width - 1 - column };
            let start = (row * width + column) * channels;
            values.extend_from_slice(&image.values()[start..start + channels]);
        }
    }
    Image::from_parts(values, size, channels)
}
