//! Changes of colour and tone, the arithmetic of torchvision's `functional.adjust_*` and of its automatic augmentation.
//!
//! All work in place on bytes; which ones are applied, and how strongly, is left to the transforms.

use crate::Image;
use crate::image::luma;

/// What becomes of every byte. A loop: compilers take minutes over `array::from_fn` of 256 inlined closures.
fn all_bytes(change: impl Fn(u8) -> u8) -> [u8; 256] {
    let mut table = [0; 256];
    for (byte, entry) in table.iter_mut().enumerate() {
        *entry = change(byte as u8);
    }
    table
}

/// Changes every value by a table.
fn look_up(image: &mut Image, table: impl Fn(u8) -> u8) {
    let table = all_bytes(table);
    for value in image.values_mut() {
        *value = table[usize::from(*value)];
    }
}

/// `factor` times one value and the rest of the other.
fn blend(value: f32, other: f32, factor: f32) -> u8 {
    // Casts from floats to bytes saturate.
    (factor * value + (1. - factor) * other) as u8
}

/// 0 gives black, 1 the same picture (torchvision's `adjust_brightness`).
///
/// ```
/// use tallow_data::{Image, transform::functional};
///
/// # fn main() -> tallow_data::Result<()> {
/// let mut image = Image::new(vec![10, 100, 200], [1, 1], 3)?;
/// functional::adjust_brightness(&mut image, 1.5);
/// assert_eq!(image.values(), [15, 150, 255]);
/// # Ok(())
/// # }
/// ```
pub fn adjust_brightness(image: &mut Image, factor: f64) {
    look_up(image, |value| blend(value.into(), 0., factor as f32));
}

/// 0 gives the mean grey, 1 the same picture.
pub fn adjust_contrast(image: &mut Image, factor: f64) {
    let pixels = image.height() * image.width();
    let sum: u64 = match image.channels() {
        1 => image.values().iter().map(|&value| u64::from(value)).sum(),
        _ => {
            let (pixels, _) = image.values().as_chunks::<3>();
            pixels
                .iter()
                .map(|&[r, g, b]| u64::from(luma(r, g, b)))
                .sum()
        }
    };
    let mean = (sum as f64 / pixels as f64) as f32;
    look_up(image, |value| blend(value.into(), mean, factor as f32));
}

/// 0 gives grey, 1 the same picture. Pictures of one channel stay as they are.
pub fn adjust_saturation(image: &mut Image, factor: f64) {
    if image.channels() == 3 {
        let factor = factor as f32;
        for pixel in image.values_mut().as_chunks_mut::<3>().0 {
            let [r, g, b] = pixel.map(f32::from);
            let grey = 0.2989 * r + 0.587 * g + 0.114 * b;
            *pixel = [r, g, b].map(|value| blend(value, grey, factor));
        }
    }
}

/// Turns the circle of colours by `turn`, -0.5 to 0.5. Pictures of one channel stay as they are.
pub fn adjust_hue(image: &mut Image, turn: f64) {
    if image.channels() == 3 {
        for pixel in image.values_mut().as_chunks_mut::<3>().0 {
            *pixel = turn_hue(*pixel, turn as f32);
        }
    }
}

fn turn_hue(pixel: [u8; 3], turn: f32) -> [u8; 3] {
    let [r, g, b] = pixel.map(|value| f32::from(value) / 255.);
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let range = most - least;
    if range == 0. {
        return pixel;
    }
    let sixths = if most == r {
        (g - b) / range
    } else if most == g {
        2. + (b - r) / range
    } else {
        4. + (r - g) / range
    };
    let h = (sixths / 6. + turn).rem_euclid(1.) * 6.;
    let (v, s) = (most, range / most);
    let f = h - h.floor();
    let (p, q, t) = (v * (1. - s), v * (1. - s * f), v * (1. - s * (1. - f)));
    let colour = match h as u8 % 6 {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    };
    colour.map(|value| (value * 255.999) as u8)
}

/// Grey in every channel. Pictures of one channel stay as they are.
pub fn rgb_to_grayscale(image: &mut Image) {
    if image.channels() == 3 {
        for pixel in image.values_mut().as_chunks_mut::<3>().0 {
            let [r, g, b] = *pixel;
            *pixel = [luma(r, g, b); 3];
        }
    }
}

/// Keeps the upper `bits` of each value.
pub fn posterize(image: &mut Image, bits: u32) {
    let mask = 0xffu8.checked_shl(8u32.saturating_sub(bits)).unwrap_or(0);
    look_up(image, |value| value & mask);
}

/// Inverts values from `threshold` (0 to 256) on.
pub fn solarize(image: &mut Image, threshold: f64) {
    look_up(image, |value| {
        if f64::from(value) >= threshold {
            255 - value
        } else {
            value
        }
    });
}

/// Changes each channel by a table of its own, made from how often each value occurs.
fn by_histogram(image: &mut Image, table: impl Fn(&[u32; 256]) -> Option<[u8; 256]>) {
    let channels = image.channels();
    for channel in 0..channels {
        let mut counts = [0; 256];
        for value in image.values()[channel..].iter().step_by(channels) {
            counts[usize::from(*value)] += 1;
        }
        if let Some(table) = table(&counts) {
            for value in image.values_mut()[channel..].iter_mut().step_by(channels) {
                *value = table[usize::from(*value)];
            }
        }
    }
}

/// Stretches each channel to the range from 0 to 255.
pub fn autocontrast(image: &mut Image) {
    by_histogram(image, |counts| {
        let least = counts.iter().position(|&count| count > 0)?;
        let most = counts.iter().rposition(|&count| count > 0)?;
        let scale = (most > least).then(|| 255. / (most - least) as f32)?;
        Some(all_bytes(|value| {
            ((f32::from(value) - least as f32) * scale) as u8
        }))
    });
}

/// Spreads each channel so that its values occur about equally often (Pillow's `ImageOps.equalize`).
pub fn equalize(image: &mut Image) {
    by_histogram(image, |counts| {
        let last = *counts.iter().rfind(|&&count| count > 0)?;
        let step = (counts.iter().sum::<u32>() - last) / 255;
        if step == 0 {
            return None;
        }
        let mut below = step / 2;
        let mut table = [0; 256];
        for (entry, count) in table.iter_mut().zip(counts) {
            *entry = (below / step).min(255) as u8;
            below += count;
        }
        Some(table)
    });
}

/// 0 gives a smoothed picture, 1 the same one; edges stay as they are.
pub fn adjust_sharpness(image: &mut Image, factor: f64) {
    let (height, width, channels) = (image.height(), image.width(), image.channels());
    if height < 3 || width < 3 {
        return;
    }
    let factor = factor as f32;
    let stride = width * channels;
    let source = image.values().to_vec();
    for y in 1..height - 1 {
        let rows = [y - 1, y, y + 1].map(|y| &source[y * stride..][..stride]);
        let row = &mut image.values_mut()[y * stride..][..stride];
        for x in channels..stride - channels {
            let sum: u32 = rows
                .iter()
                .map(|row| {
                    [row[x - channels], row[x], row[x + channels]]
                        .map(u32::from)
                        .iter()
                        .sum::<u32>()
                })
                .sum();
            let middle = u32::from(source[x + y * stride]);
            let smooth = ((sum + 4 * middle) as f32 / 13.).round();
            row[x] = blend(middle as f32, smooth, factor);
        }
    }
}
