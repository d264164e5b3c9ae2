//! JPEG, through the crate `zune-jpeg`; with the feature `turbojpeg`, the pixels of most files through libjpeg-turbo.
//!
//! zune-jpeg rounds otherwise than libjpeg, which Pillow uses: brightness is within 1 of 255; colours are within 1 as well, or 2
//! where they are subsampled, since it smooths them in two steps that round each. In blue, a step of colour counts 1.77.
//! The conversion to red, green and blue is the same to the bit. So one value in a thousand is off by 3 or 4.

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
    let settings = DecoderOptions::default()
        .set_max_width(side)
        .set_max_height(side);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), settings);
    let damaged = |error: zune_jpeg::errors::DecodeErrors| Format::Jpeg.damaged(error);
    decoder.decode_headers().map_err(damaged)?;
    let (width, height) = decoder.dimensions().unwrap_or((0, 0));
    options.limits.check(width as u64, height as u64)?;

    let grey_file = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let grey_wanted =
        options.channels == Channels::Grey && decoder.input_colorspace() == Some(ColorSpace::YCbCr);
    #[cfg(feature = "turbojpeg")]
    if let Some(ColorSpace::Luma | ColorSpace::YCbCr) = decoder.input_colorspace() {
        let grey = grey_file || grey_wanted;
        let exif = decoder.exif().filter(|_| options.exif_orientation);
        let orientation = exif.map(|exif| orientation::from_exif(exif));
        // It warns of harmless bytes between headers as of missing pixels: what it doesn't take as it is, the strict decoder
        // below reads or refuses.
        if let Ok(image) = super::turbo::decode(file, grey, options) {
            return Ok((image, orientation.unwrap_or(Orientation::NoTransforms)));
        }
    }
    check_sampling(file)?;
    // The grey that Pillow takes from a colour file is the file's own first channel.
    let grey = grey_file || grey_wanted;
    let out = if grey {
        ColorSpace::Luma
    } else {
        ColorSpace::RGB
    };
    // Strict from here on, where missing or damaged data are an error: a picture that is grey from the middle on is not what
    // anyone wants to train on. Headers may be as sloppy as cameras write them.
    decoder.set_options(settings.set_strict_mode(true).jpeg_set_out_colorspace(out));
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

/// Refuses the two kinds of file that the decoder reads wrongly without saying so: brightness sampled more coarsely than colour,
/// and sequential files with subsampled channels in scans of their own.
fn check_sampling(file: &[u8]) -> Result<(), DecodeProblem> {
    let unsupported = |what| Err(Format::Jpeg.damaged(what));
    let (mut sequential, mut factors) = (false, Vec::new());
    let mut place = 2;
    while let Some(&[0xff, marker, high, low]) = file.get(place..place + 4) {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let segment = file.get(place + 4..place + 2 + length).unwrap_or(&[]);
        match marker {
            // Filling between segments, and marks without length.
            0xff => {
                place += 1;
                continue;
            }
            0x01 | 0xd0..=0xd8 => {
                place += 2;
                continue;
            }
            0xc0..=0xc2 => {
                sequential = marker != 0xc2;
                let components = segment.get(6..).unwrap_or(&[]).chunks_exact(3);
                factors = components.map(|c| [c[1] >> 4, c[1] & 15]).collect();
            }
            0xda => {
                let subsampled = factors.iter().any(|f| *f != factors[0]);
                let scanned = segment.first().map_or(0, |&count| usize::from(count));
                if sequential && subsampled && scanned < factors.len() {
                    return unsupported("subsampled channels in scans of their own");
                }
                return Ok(());
            }
            _ => {}
        }
        if let [first, rest @ ..] = factors.as_slice()
            && rest.iter().any(|f| f[0] > first[0] || f[1] > first[1])
        {
            return unsupported("brightness sampled more coarsely than colour");
        }
        place += 2 + length;
    }
    Ok(())
}
