//! From floats to words of two 16-bit numbers, and back.

use crate::error::{Result, check_len};
use crate::parallel;
use crate::simd::dispatch;

/// Which whole numbers stand for floats: `scale * (q - zero_point)`, `q` from 0 to 255.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantization {
    /// The difference between neighbouring values, above zero.
    pub scale: f32,
    /// The number that stands for 0.
    pub zero_point: u8,
}

impl Quantization {
    /// Least and largest `q - zero_point`.
    #[inline(always)]
    pub(super) fn range(self) -> [f32; 2] {
        let zero = f32::from(self.zero_point);
        [-zero, 255.0 - zero]
    }
}

/// Words of a pixel of so many channels.
pub fn words(channels: usize) -> usize {
    channels.div_ceil(2)
}

/// A word of two numbers.
pub(super) fn word(first: i16, second: i16) -> f32 {
    let mut word = [0.0];
    halves_mut(&mut word).copy_from_slice(&[first, second]);
    word[0]
}

/// The numbers of words.
#[inline(always)]
pub(super) fn halves(words: &[f32]) -> &[i16] {
    // SAFETY: twice as many numbers of half the size, with a weaker alignment; any bits are numbers.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), 2 * words.len()) }
}

/// The numbers of words, to be written.
#[inline(always)]
pub(super) fn halves_mut(words: &mut [f32]) -> &mut [i16] {
    // SAFETY: as above, borrowed exclusively; any bits are floats.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), 2 * words.len()) }
}

/// `q - zero_point` of `x: [pixels, channels]` as `y: [pixels, words(channels)]`, `q` the whole number nearest to
/// `x / scale + zero_point`, the even one of two, from 0 to 255: ONNX's `QuantizeLinear`. NaN becomes the least number.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) where `y` is longer or shorter than that.
pub fn quantize(
    quantization: Quantization,
    channels: usize,
    x: &[f32],
    y: &mut [f32],
) -> Result<()> {
    let pixels = x.len() / channels.max(1);
    check_len("int8::quantize", "x", x, pixels * channels)?;
    check_len("int8::quantize", "y", y, pixels * words(channels))?;
    let rows = (
        parallel::rows(x, channels),
        parallel::rows(y, words(channels)),
    );
    parallel::for_each(pixels, parallel::grain(channels), rows, |_, (from, to)| {
        let size = [channels, words(channels)];
        if channels == 2 * size[1] {
            return quantize_row(quantization, from.data, halves_mut(to.data));
        }
        let to = to.data.chunks_exact_mut(size[1]);
        for (from, to) in from.data.chunks_exact(channels).zip(to) {
            let to = halves_mut(to);
            quantize_row(quantization, from, &mut to[..channels]);
            to[channels] = 0;
        }
    });
    Ok(())
}

/// The floats `scale * (q - zero_point)` of words: ONNX's `DequantizeLinear`.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) where `x` is longer or shorter than `y` has words.
pub fn dequantize(
    quantization: Quantization,
    channels: usize,
    x: &[f32],
    y: &mut [f32],
) -> Result<()> {
    let pixels = y.len() / channels.max(1);
    check_len("int8::dequantize", "y", y, pixels * channels)?;
    check_len("int8::dequantize", "x", x, pixels * words(channels))?;
    let rows = (
        parallel::rows(x, words(channels)),
        parallel::rows(y, channels),
    );
    parallel::for_each(pixels, parallel::grain(channels), rows, |_, (from, to)| {
        let to = to.data.chunks_exact_mut(channels);
        for (from, to) in from.data.chunks_exact(words(channels)).zip(to) {
            dequantize_row(quantization.scale, halves(from), to);
        }
    });
    Ok(())
}

/// One number.
#[inline(always)]
pub(super) fn nearest(x: f32, scale: f32, [low, high]: [f32; 2]) -> i16 {
    let number = (x / scale).round_ties_even().max(low).min(high);
    // SAFETY: between -255 and 255; `max` has replaced a NaN.
    unsafe { number.to_int_unchecked::<i32>() as i16 }
}

dispatch! {
    fn quantize_row<I>(quantization: Quantization, x: &[f32], y: &mut [i16]) -> () {
        let range = quantization.range();
        for (y, &x) in y.iter_mut().zip(x) {
            *y = nearest(x, quantization.scale, range);
        }
    }
}

dispatch! {
    fn dequantize_row<I>(scale: f32, x: &[i16], y: &mut [f32]) -> () {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = scale * f32::from(x);
        }
    }
}
