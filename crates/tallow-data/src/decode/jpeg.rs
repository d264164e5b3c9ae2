//! JPEG, through the crate `zune-jpeg`.

use image::metadata::Orientation;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::{Channels, DecodeOptions, Format, bytes, orientation};
use crate::Image;
use crate::error::DecodeProblem;

pub(super) fn decode(
    file: &[u8],
    options: &DecodeOptions,
) -> Result<(Image, Orientation), DecodeProblem> {
    let side = usize::from(u16::MAX);
    // A file without an end is read strictly, where missing data are an error: a picture that is grey from the middle on is
    // not what anyone wants to train on.
    let settings = DecoderOptions::default()
        .set_max_width(side)
        .set_max_height(side)
        .set_strict_mode(!has_end(file));
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), settings);
    let damaged = |error: zune_jpeg::errors::DecodeErrors| Format::Jpeg.damaged(error);
    decoder.decode_headers().map_err(damaged)?;
    let (width, height) = decoder.dimensions().unwrap_or((0, 0));
    options.limits.check(width as u64, height as u64)?;

    let grey_file = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let grey_wanted =
        options.channels == Channels::Grey && decoder.input_colorspace() == Some(ColorSpace::YCbCr);
    // The grey that Pillow takes from a colour file is the file's own first channel.
    let grey = grey_file || grey_wanted;
    let out = if grey {
        ColorSpace::Luma
    } else {
        ColorSpace::RGB
    };
    decoder.set_options(settings.jpeg_set_out_colorspace(out));
    let values = decoder.decode().map_err(damaged)?;

    let orientation = match decoder.exif() {
        Some(exif) if options.exif_orientation => orientation::from_exif(exif),
        _ => Orientation::NoTransforms,
    };
    bytes::image(
        values,
        [height, width],
        if grey { 1 } else { 3 },
        options.channels,
    )
    .map(|image| (image, orientation))
    .ok_or_else(|| Format::Jpeg.damaged("the decoder gave another number of values"))
}

/// Whether the mark of the end (EOI) follows the start of the compressed data (SOS).
fn has_end(file: &[u8]) -> bool {
    let mut place = 2;
    while let Some(&[0xff, marker, high, low]) = file.get(place..place + 4) {
        match marker {
            0xda => {
                return file[place..]
                    .array_windows()
                    .rev()
                    .any(|w| *w == [0xff, 0xd9]);
            }
            // Filling between segments, and marks without length.
            0xff => place += 1,
            0x01 | 0xd0..=0xd8 => place += 2,
            _ => place += 2 + usize::from(u16::from_be_bytes([high, low])),
        }
    }
    false
}
