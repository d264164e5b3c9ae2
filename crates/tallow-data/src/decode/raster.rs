//! PNG, WebP, GIF and BMP, through the crate `image`.

use std::io::Cursor;

use image::codecs::{bmp::BmpDecoder, gif::GifDecoder, png::PngDecoder, webp::WebPDecoder};
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageResult};

use super::{DecodeOptions, Format, bytes};
use crate::Image;
use crate::error::DecodeProblem;

/// Bytes of memory a pixel that a decoder may take beside the picture itself.
const BYTES_PER_PIXEL: u64 = 16;

pub(super) fn decode(
    format: Format,
    file: &[u8],
    options: &DecodeOptions,
) -> Result<(Image, Orientation), DecodeProblem> {
    let mut limits = image::Limits::no_limits();
    limits.max_alloc = Some(
        options
            .limits
            .max_pixels
            .saturating_mul(BYTES_PER_PIXEL)
            .saturating_add(1 << 20),
    );
    let reader = Cursor::new(file);
    let opened: ImageResult<Box<dyn ImageDecoder>> = match format {
        Format::Png => PngDecoder::with_limits(reader, limits).map(|d| Box::new(d) as _),
        Format::WebP => WebPDecoder::new(reader).map(|d| Box::new(d) as _),
        Format::Gif => GifDecoder::new(reader).map(|d| Box::new(d) as _),
        Format::Bmp | Format::Jpeg => BmpDecoder::new(reader).map(|d| Box::new(d) as _),
    };
    let mut decoder = opened.map_err(|error| format.damaged(error))?;
    let (width, height) = decoder.dimensions();
    options.limits.check(width.into(), height.into())?;

    let orientation = if options.exif_orientation {
        // Unreadable EXIF data are no reason to refuse a readable picture.
        decoder.orientation().unwrap_or(Orientation::NoTransforms)
    } else {
        Orientation::NoTransforms
    };
    let color = decoder.color_type();
    let total = usize::try_from(decoder.total_bytes())
        .map_err(|_| format.damaged("more bytes than can be addressed"))?;
    let mut values = vec![0; total];
    decoder
        .read_image_boxed(&mut values)
        .map_err(|error| format.damaged(error))?;

    let channels = usize::from(color.channel_count());
    let values = match color {
        ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => values,
        ColorType::L16 | ColorType::La16 | ColorType::Rgb16 | ColorType::Rgba16 => {
            bytes::upper_bytes(values)
        }
        other => return Err(format.damaged(format_args!("values of type {other:?}"))),
    };
    bytes::image(
        values,
        [height as usize, width as usize],
        channels,
        options.channels,
    )
    .map(|image| (image, orientation))
    .ok_or_else(|| format.damaged("the decoder gave another number of values"))
}
