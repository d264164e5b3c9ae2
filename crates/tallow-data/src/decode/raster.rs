//! PNG, WebP, GIF and BMP, through the crate `image`.

use std::io::Cursor;

use image::codecs::{bmp::BmpDecoder, gif::GifDecoder, png::PngDecoder, webp::WebPDecoder};
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageResult};

use super::{DecodeOptions, Format, Limits, bytes};
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
    if let Format::WebP = format {
        check_webp_frames(file, options.limits)?;
    }
    let opened: ImageResult<Box<dyn ImageDecoder>> = match format {
        Format::Png => PngDecoder::with_limits(reader, limits.clone()).map(|d| Box::new(d) as _),
        Format::WebP => WebPDecoder::new(reader).map(|d| Box::new(d) as _),
        Format::Gif => GifDecoder::new(reader).map(|d| Box::new(d) as _),
        Format::Bmp | Format::Jpeg => BmpDecoder::new(reader).map(|d| Box::new(d) as _),
    };
    let mut decoder = opened.map_err(|error| format.damaged(error))?;
    let (width, height) = decoder.dimensions();
    options.limits.check(width.into(), height.into())?;
    decoder
        .set_limits(limits)
        .map_err(|error| format.damaged(error))?;

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

/// Checks the sizes that the frames of a WebP file give themselves: the decoder takes memory for them before it compares them
/// with the size of the picture.
fn check_webp_frames(file: &[u8], limits: Limits) -> Result<(), DecodeProblem> {
    let mut place = 12;
    while let Some((head, data)) = file
        .get(place..)
        .and_then(|rest| rest.split_first_chunk::<8>())
    {
        let [a, b, c, d, size @ ..] = *head;
        let size = u32::from_le_bytes(size) as usize;
        let side = |low: u8, high: u8| u64::from(u16::from_le_bytes([low, high]) & 0x3fff);
        match (&[a, b, c, d], data) {
            (b"VP8 ", [_, _, _, 0x9d, 0x01, 0x2a, w0, w1, h0, h1, ..]) => {
                limits.check(side(*w0, *w1), side(*h0, *h1))?;
            }
            (b"VP8L", [0x2f, b0, b1, b2, b3, ..]) => {
                let bits = u64::from(u32::from_le_bytes([*b0, *b1, *b2, *b3]));
                limits.check((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1)?;
            }
            // The chunks of an animation's frame lie inside, after 16 bytes.
            (b"ANMF", _) => {
                place += 8 + 16;
                continue;
            }
            _ => {}
        }
        place = place
            .saturating_add(8)
            .saturating_add(size)
            .saturating_add(size & 1);
    }
    Ok(())
}
