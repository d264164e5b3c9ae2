//! From the bytes of an image file to a picture with red, green and blue.

use crate::decode::{self, DecodeOptions};
use crate::{Image, Result};

pub(super) fn decode(bytes: &[u8]) -> Result<Image> {
    decode::decode(bytes, &DecodeOptions::rgb())
}
