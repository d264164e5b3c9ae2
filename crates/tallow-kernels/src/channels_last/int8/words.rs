//! From floats to words of two 16-bit numbers, and back.

use crate::error::{Result, check_len};
use crate::parallel;
use crate::simd::{Isa, LANES, dispatch};

/// Which whole numbers stand for floats: `scale * (q - zero_point)`, `q` from 0 to 255.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantization {
    /// The difference between neighbouring values, above zero.
    pub scale: f32,
    /// The number that stands for 0.
    pub zero_point: u8,
}

impl Quantization {
    /// `q - zero_point` of floats; that of a NaN is the least.
    #[inline(always)]
    pub(super) fn numbers<I: Isa>(self, x: I::Floats) -> [i16; LANES] {
        let zero = f32::from(self.zero_point);
        let (low, high) = (I::splat(-zero), I::splat(255.0 - zero));
        let scaled = I::div(x, I::splat(self.scale));
        // The bounds are whole numbers, so that it doesn't matter which comes first, they or the rounding.
        I::to_halves(I::min(I::max(scaled, low), high))
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
        // Many pixels at a time, so that few channels fill registers as well.
        let pixels = (ODD_CHUNK / channels).max(1);
        let mut numbers = [0; ODD_CHUNK];
        let to = to.data.chunks_mut(pixels * size[1]);
        for (from, to) in from.data.chunks(pixels * channels).zip(to) {
            if channels > ODD_CHUNK {
                let to = halves_mut(to);
                quantize_row(quantization, from, &mut to[..channels]);
                to[channels] = 0;
                continue;
            }
            let numbers = &mut numbers[..from.len()];
            quantize_row(quantization, from, numbers);
            spread(channels, numbers, halves_mut(to));
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

/// Puts a zero behind each pixel's odd number of channels.
fn spread(channels: usize, numbers: &[i16], to: &mut [i16]) {
    if channels == 3 {
        let (numbers, to) = (numbers.as_chunks::<3>().0, to.as_chunks_mut::<4>().0);
        for (&[red, green, blue], to) in numbers.iter().zip(to) {
            *to = [red, green, blue, 0];
        }
        return;
    }
    let to = to.chunks_exact_mut(channels + 1);
    for (numbers, to) in numbers.chunks_exact(channels).zip(to) {
        to[..channels].copy_from_slice(numbers);
        to[channels] = 0;
    }
}

/// Numbers that are found at a time where pixels have an odd number of channels.
const ODD_CHUNK: usize = 1024;

/// At most [`LANES`] floats, then zeros.
#[inline(always)]
pub(super) fn load<I: Isa>(x: &[f32]) -> I::Floats {
    match x.first_chunk() {
        Some(all) => I::load(all),
        None => I::load_rest(x),
    }
}

/// At most [`LANES`] numbers, then zeros.
#[inline(always)]
pub(super) fn load_halves<I: Isa>(x: &[i16]) -> I::Floats {
    match x.first_chunk() {
        Some(all) => I::from_halves(all),
        None => {
            let mut all = [0; LANES];
            all[..x.len()].copy_from_slice(x);
            I::from_halves(&all)
        }
    }
}

/// As many of the values as `to` has room for.
#[inline(always)]
pub(super) fn store<T: Copy>(values: &[T; LANES], to: &mut [T]) {
    match to.first_chunk_mut() {
        Some(all) => *all = *values,
        None => to.copy_from_slice(&values[..to.len()]),
    }
}

dispatch! {
    fn quantize_row<I>(quantization: Quantization, x: &[f32], y: &mut [i16]) -> () {
        for (y, x) in y.chunks_mut(LANES).zip(x.chunks(LANES)) {
            store(&quantization.numbers::<I>(load::<I>(x)), y);
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
