//! Encoded pictures (JPEG, PNG, WebP, GIF, BMP) to [`Image`]s.
//!
//! The formats themselves are left to the crates `zune-jpeg` and `image`; this module keeps them within bounds, so that no
//! bytes whatever can panic or take more memory than a picture of [`Limits::max_pixels`] needs, and makes of what they give the
//! one form that transforms take. Results are those of Pillow's `Image.open(..).convert("RGB")`: to the bit for lossless formats;
//! JPEG within 4 of 255, and all but one value in a thousand within 2, since libjpeg rounds otherwise. With the feature
//! `turbojpeg`, libjpeg-turbo itself decodes JPEG files (but CMYK): to the bit, and faster; it needs a C compiler, CMake and
//! NASM to be built.

mod bytes;
mod jpeg;
mod orientation;
mod raster;
#[cfg(feature = "turbojpeg")]
mod turbo;

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use crate::error::DecodeProblem;
use crate::{Error, FileProblem, Image, Result};

/// How pictures are decoded.
///
/// ```
/// use tallow_data::decode::{self, Channels, DecodeOptions};
///
/// # fn main() -> tallow_data::Result<()> {
/// let bytes = b"BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0\0\0\0\0\x04\0\0\0\
///     \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\x02\x01\0";
/// let image = decode::decode(bytes, &DecodeOptions { channels: Channels::Rgb, ..Default::default() })?;
/// assert_eq!(image.pixel(0, 0), [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecodeOptions {
    /// Grey, colour, or as the file has it.
    pub channels: Channels,
    /// Turns and mirrors the picture as its EXIF data ask for (Pillow's `ImageOps.exif_transpose`). Off by default, as in
    /// torchvision.
    pub exif_orientation: bool,
    /// What a file may ask for.
    pub limits: Limits,
    /// Lets a JPEG be decoded at a half, a quarter or an eighth of its size, as long as its shorter side keeps at least so many
    /// pixels: faster, and nearly the same once it is resized (Pillow's `Image.draft`). Needs the feature `turbojpeg`; without
    /// it, pictures come as large as they are.
    pub jpeg_min_side: Option<usize>,
}

impl DecodeOptions {
    /// Colour whatever the file holds: what torchvision's `ImageFolder` does.
    pub fn rgb() -> Self {
        Self {
            channels: Channels::Rgb,
            ..Self::default()
        }
    }

    /// One channel whatever the file holds.
    pub fn grey() -> Self {
        Self {
            channels: Channels::Grey,
            ..Self::default()
        }
    }
}

/// The channels of a decoded picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Channels {
    /// 1 channel for grey files, 3 for all others. Alpha is left away.
    #[default]
    AsIs,
    /// 1 channel; colours by the luma weights of ITU-R 601, as Pillow's `convert("L")`.
    Grey,
    /// 3 channels; grey files three times the same.
    Rgb,
}

/// What a file may ask for before any memory is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Width times height. By default 89,478,485, above which Pillow warns of a decompression bomb.
    pub max_pixels: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pixels: 89_478_485,
        }
    }
}

impl Limits {
    /// Refuses a picture that is too large, or has no pixels.
    fn check(self, width: u64, height: u64) -> Result<(), DecodeProblem> {
        if width == 0 || height == 0 {
            return Err(DecodeProblem::Empty { height, width });
        }
        if width.saturating_mul(height) > self.max_pixels {
            return Err(DecodeProblem::TooManyPixels {
                height,
                width,
                limit: self.max_pixels,
            });
        }
        Ok(())
    }
}

/// Decodes the picture that `bytes` hold, whatever the format: JPEG, PNG, WebP, GIF (the first frame) or BMP.
///
/// 16-bit values keep their upper byte, palettes become colours, alpha is left away.
///
/// # Errors
///
/// [`Error::Decode`] if the format is another one, the data are damaged or end early, or a limit is passed.
pub fn decode(bytes: &[u8], options: &DecodeOptions) -> Result<Image> {
    decode_problem(bytes, options).map_err(Error::Decode)
}

/// Reads a file and decodes it, as [`decode`] does.
///
/// # Errors
///
/// [`Error::Io`] if the file can't be read, [`Error::File`] if it can't be decoded; both name it.
pub fn open(path: impl AsRef<Path>, options: &DecodeOptions) -> Result<Image> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|error| Error::Io {
        path: path.into(),
        error,
    })?;
    decode_problem(&bytes, options).map_err(|problem| Error::File {
        path: path.into(),
        problem: FileProblem::Picture(problem),
    })
}

/// A format, by the bytes that a file begins with.
#[derive(Debug, Clone, Copy)]
enum Format {
    Jpeg,
    Png,
    WebP,
    Gif,
    Bmp,
}

impl Format {
    fn of(bytes: &[u8]) -> Result<Self, DecodeProblem> {
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Ok(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(Self::Png),
            [
                b'R',
                b'I',
                b'F',
                b'F',
                _,
                _,
                _,
                _,
                b'W',
                b'E',
                b'B',
                b'P',
                ..,
            ] => Ok(Self::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Ok(Self::Gif),
            [b'B', b'M', ..] => Ok(Self::Bmp),
            _ => Err(DecodeProblem::UnknownFormat {
                found: bytes[..bytes.len().min(12)].to_vec(),
            }),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
        }
    }

    /// A fault in data of this format, as a decoder puts it.
    fn damaged(self, message: impl ToString) -> DecodeProblem {
        DecodeProblem::Damaged {
            format: self.name(),
            message: message.to_string(),
        }
    }
}

fn decode_problem(bytes: &[u8], options: &DecodeOptions) -> Result<Image, DecodeProblem> {
    let format = Format::of(bytes)?;
    // The decoders are other people's, and some bytes make them panic: that is a damaged file, not a fault of the caller.
    let decoded = panic::catch_unwind(AssertUnwindSafe(|| match format {
        Format::Jpeg => jpeg::decode(bytes, options),
        _ => raster::decode(format, bytes, options),
    }));
    let (image, orientation) =
        decoded.unwrap_or_else(|_| Err(format.damaged("the decoder gave up on it")))?;
    Ok(if options.exif_orientation {
        orientation::apply(image, orientation)
    } else {
        image
    })
}
