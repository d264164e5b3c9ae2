//! From floats to words of two 16-bit numbers, and back.

use crate::conv::Conv2dGeometry;
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

/// A word of four numbers.
pub(super) fn four(numbers: [i8; 4]) -> f32 {
    f32::from_bits(u32::from_le_bytes(numbers.map(i8::cast_unsigned)))
}

/// Pixels of an image.
pub(super) fn plane(geometry: &Conv2dGeometry) -> usize {
    geometry.in_size[0] * geometry.in_size[1]
}

/// Words of four `q` for the convolution `fours`, which may be of larger images, padded with the zero point, of words of two
/// `q - zero_point` for `pairs`.
pub(super) fn narrow(
    zero_point: u8,
    pairs: &Conv2dGeometry,
    x: &[f32],
    fours: &Conv2dGeometry,
    y: &mut [f32],
) {
    let zero = f32::from_bits(u32::from_le_bytes([zero_point; 4]));
    let from_width = words(pairs.in_channels);
    let from_row = pairs.in_size[1] * from_width;
    let to_row = fours.in_size[1] * fours.in_channels;
    let [above, before] = [0, 1].map(|axis| (fours.in_size[axis] - pairs.in_size[axis]) / 2);
    let edge = before * fours.in_channels;
    let rows = fours.batch * fours.in_size[0];
    let grain = parallel::grain(to_row);
    parallel::for_each(rows, grain, parallel::rows(y, to_row), |first, to| {
        for (index, to) in to.data.chunks_exact_mut(to_row.max(1)).enumerate() {
            let (image, row) = (
                (first + index) / fours.in_size[0],
                (first + index) % fours.in_size[0],
            );
            let from = row.wrapping_sub(above);
            if from >= pairs.in_size[0] {
                to.fill(zero);
                continue;
            }
            let from = &x[(image * pairs.in_size[0] + from) * from_row..][..from_row];
            let (left, rest) = to.split_at_mut(edge);
            let (to, right) = rest.split_at_mut(rest.len() - edge);
            left.fill(zero);
            right.fill(zero);
            if from_width == 2 * fours.in_channels {
                narrow_row(zero_point, from, to);
                continue;
            }
            let to = to.chunks_exact_mut(fours.in_channels);
            for (from, to) in from.chunks_exact(from_width).zip(to) {
                narrow_row(zero_point, from, to);
            }
        }
    });
}

dispatch! {
    fn narrow_row<I>(zero_point: u8, from: &[f32], to: &mut [f32]) -> () {
        let zero = u32::from(zero_point);
        let bytes = |word: f32| {
            let bits = word.to_bits();
            bits.wrapping_add(zero) & 0xff | ((bits >> 16).wrapping_add(zero) & 0xff) << 8
        };
        let (pairs, rest) = from.as_chunks::<2>();
        for (to, [first, second]) in to.iter_mut().zip(pairs) {
            *to = f32::from_bits(bytes(*first) | bytes(*second) << 16);
        }
        if let ([last], Some(to)) = (rest, to.get_mut(pairs.len())) {
            *to = f32::from_bits(bytes(*last));
        }
    }
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
