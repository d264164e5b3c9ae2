//! The pixels of JPEG files through libjpeg-turbo, what Pillow uses as well; the feature `turbojpeg`.

use std::cell::RefCell;

use turbojpeg::{Decompressor, PixelFormat, ScalingFactor};

use super::{DecodeOptions, Format, bytes};
use crate::Image;
use crate::error::DecodeProblem;

/// Each scan of a progressive file goes over all of it; beyond this many, a file only wants to take time.
const MOST_SCANS: u32 = 500;

thread_local! {
    /// Keeps its tables from picture to picture.
    static DECOMPRESSOR: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
}

/// A picture of one brightness (`grey`) or of red, green and blue; its headers and limits have been looked at.
pub(super) fn decode(
    file: &[u8],
    grey: bool,
    options: &DecodeOptions,
) -> Result<Image, DecodeProblem> {
    let damaged = |error: turbojpeg::Error| Format::Jpeg.damaged(error);
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let mut decompressor = match kept.take() {
            Some(decompressor) => decompressor,
            None => Decompressor::new().map_err(damaged)?,
        };
        decompressor.set_scan_limit(MOST_SCANS).map_err(damaged)?;
        let header = decompressor.read_header(file).map_err(damaged)?;
        // The headers were read by another decoder before; the two may see another picture in bytes made to do harm.
        options
            .limits
            .check(header.width as u64, header.height as u64)?;
        let scale = scale(header.width.min(header.height), options.jpeg_min_side);
        decompressor.set_scaling_factor(scale).map_err(damaged)?;
        let (width, height) = (scale.scale(header.width), scale.scale(header.height));
        let channels = if grey { 1 } else { 3 };
        let mut values = vec![0; width * height * channels];
        let image = turbojpeg::Image {
            pixels: values.as_mut_slice(),
            width,
            pitch: width * channels,
            height,
            format: if grey {
                PixelFormat::GRAY
            } else {
                PixelFormat::RGB
            },
        };
        // Warnings are errors: a picture that is grey from the middle on is not what anyone wants to train on.
        decompressor.decompress(file, image).map_err(damaged)?;
        // One that failed is not used again.
        *kept = Some(decompressor);
        bytes::image(values, [height, width], channels, options.channels)
            .ok_or_else(|| Format::Jpeg.damaged("the decoder gave another number of values"))
    })
}

/// The smallest scale that leaves the shorter side long enough.
fn scale(short: usize, least: Option<usize>) -> ScalingFactor {
    let scales = [
        ScalingFactor::ONE_EIGHTH,
        ScalingFactor::ONE_QUARTER,
        ScalingFactor::ONE_HALF,
    ];
    let fits = |scale: &ScalingFactor| least.is_some_and(|least| scale.scale(short) >= least);
    scales.into_iter().find(fits).unwrap_or(ScalingFactor::ONE)
}
