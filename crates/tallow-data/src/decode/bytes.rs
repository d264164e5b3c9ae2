//! From the bytes that decoders give to an [`Image`]: channels left away, added or mixed.

use super::Channels;
use crate::Image;

/// Makes an image of `[H, W, from]` bytes, where `from` is 1 to 4 (grey, grey and alpha, RGB, RGB and alpha).
///
/// `None` if the number of bytes isn't that of the size.
pub(super) fn image(
    mut bytes: Vec<u8>,
    size: [usize; 2],
    from: usize,
    channels: Channels,
) -> Option<Image> {
    let colours = if from < 3 { 1 } else { 3 };
    let pixels = size[0].checked_mul(size[1])?;
    if bytes.len() != pixels.checked_mul(from)? {
        return None;
    }
    match from {
        2 => drop_alpha::<2, 1>(&mut bytes),
        4 => drop_alpha::<4, 3>(&mut bytes),
        _ => {}
    }
    let (bytes, to) = match (channels, colours) {
        (Channels::Grey, 3) => (luma(bytes), 1),
        (Channels::Rgb, 1) => (bytes.iter().flat_map(|&grey| [grey; 3]).collect(), 3),
        _ => (bytes, colours),
    };
    Image::new(bytes, size, to).ok()
}

/// Moves the colours together, in place.
fn drop_alpha<const FROM: usize, const TO: usize>(bytes: &mut Vec<u8>) {
    let pixels = bytes.len() / FROM;
    for pixel in 0..pixels {
        for colour in 0..TO {
            bytes[pixel * TO + colour] = bytes[pixel * FROM + colour];
        }
    }
    bytes.truncate(pixels * TO);
}

/// Grey from colours, in place, as Pillow computes it.
fn luma(mut bytes: Vec<u8>) -> Vec<u8> {
    let pixels = bytes.len() / 3;
    for pixel in 0..pixels {
        let [r, g, b] = [0, 1, 2].map(|c| bytes[pixel * 3 + c]);
        bytes[pixel] = crate::image::luma(r, g, b);
    }
    bytes.truncate(pixels);
    bytes
}

/// The upper bytes of 16-bit values in the machine's order, in place: the scale from 0 to 255 of Pillow.
pub(super) fn upper_bytes(mut bytes: Vec<u8>) -> Vec<u8> {
    let upper = usize::from(cfg!(target_endian = "little"));
    let values = bytes.len() / 2;
    for value in 0..values {
        bytes[value] = bytes[2 * value + upper];
    }
    bytes.truncate(values);
    bytes
}
