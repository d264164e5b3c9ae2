//! From exact sums to floats or to the next convolution's words, in one pass.

use super::words::{Quantization, halves, halves_mut, nearest, words};
use crate::error::{Result, check_len};
use crate::shared::SharedMut;
use crate::simd::dispatch;

/// What [`forward`](super::forward) does to its sums: `clamp(scale * sum + bias + residual)`.
#[derive(Debug, Clone, Copy)]
pub struct Finish<'a> {
    /// `[O]`: the scale of the input times that of an output channel's weights.
    pub scales: &'a [f32],
    /// `[O]`: a number for each output channel.
    pub bias: Option<&'a [f32]>,
    /// What is added, shaped as the output.
    pub residual: Option<Residual<'a>>,
    /// At least the first, at most the second; a relu is `[0.0, f32::INFINITY]`.
    pub clamp: Option<[f32; 2]>,
}

/// What is added to the output.
#[derive(Debug, Clone, Copy)]
pub enum Residual<'a> {
    /// `[N, H', W', O]`.
    Floats(&'a [f32]),
    /// `[N, H', W', words(O)]`.
    Words(&'a [f32], Quantization),
}

/// Where the output goes.
#[derive(Debug)]
pub enum Target<'a> {
    /// `[N, H', W', O]`.
    Floats(&'a mut [f32]),
    /// `[N, H', W', words(O)]`, quantized for the next convolution.
    Words(&'a mut [f32], Quantization),
}

/// Channels that are finished at a time, in registers and the first cache.
const CHUNK: usize = 64;

impl<'a> Finish<'a> {
    /// Scales alone.
    pub fn new(scales: &'a [f32]) -> Self {
        Self {
            scales,
            bias: None,
            residual: None,
            clamp: None,
        }
    }

    pub(super) fn check(
        &self,
        kernel: &'static str,
        pixels: usize,
        columns: usize,
        y: &Target<'_>,
    ) -> Result<()> {
        check_len(kernel, "scales", self.scales, columns)?;
        if let Some(bias) = self.bias {
            check_len(kernel, "bias", bias, columns)?;
        }
        match self.residual {
            Some(Residual::Floats(values)) => {
                check_len(kernel, "residual", values, pixels * columns)?;
            }
            Some(Residual::Words(values, _)) => {
                check_len(kernel, "residual", values, pixels * words(columns))?;
            }
            None => {}
        }
        match y {
            Target::Floats(values) => check_len(kernel, "y", values, pixels * columns),
            Target::Words(values, _) => check_len(kernel, "y", values, pixels * words(columns)),
        }
    }

    /// Where tasks bring sums that are too large by `1 / factor`.
    pub(super) fn sink<'s>(&'s self, columns: usize, factor: f32, y: Target<'s>) -> Sink<'s> {
        let (values, to) = match y {
            Target::Floats(values) => (values, None),
            Target::Words(values, quantization) => (values, Some(quantization)),
        };
        Sink {
            finish: self,
            columns,
            factor,
            to,
            target: SharedMut::new(values),
        }
    }
}

/// Takes a task's sums while they are in its core's cache.
pub(crate) struct Sink<'a> {
    finish: &'a Finish<'a>,
    columns: usize,
    factor: f32,
    to: Option<Quantization>,
    target: SharedMut<'a>,
}

/// Sums of some channels of pixels that follow each other.
#[derive(Clone, Copy)]
pub(crate) struct Sums<'a> {
    /// The first pixel of the output, and how many.
    pub(crate) pixels: [usize; 2],
    /// The first channel, an even one, and how many.
    pub(crate) channels: [usize; 2],
    /// `[pixels][stride]`.
    pub(crate) values: &'a [f32],
    /// Floats from one pixel to the next.
    pub(crate) stride: usize,
}

impl Sink<'_> {
    /// Finishes sums that no other task brings.
    pub(crate) fn store(&self, sums: Sums<'_>) {
        finish_rows(self, sums);
    }
}

dispatch! {
    fn finish_rows<I>(sink: &Sink<'_>, sums: Sums<'_>) -> () {
        let [first, pixels] = sums.pixels;
        let [start, channels] = sums.channels;
        let end = start + channels;
        let width = if sink.to.is_some() { words(sink.columns) } else { sink.columns };
        let place = if sink.to.is_some() { [start / 2, words(end)] } else { [start, end] };
        for index in 0..pixels {
            let pixel = first + index;
            // SAFETY: the caller brings the sums of this pixel's channels alone.
            let target = unsafe { sink.target.slice(pixel * width + place[0], place[1] - place[0]) };
            let row = &sums.values[index * sums.stride..][..channels];
            for from in (0..channels).step_by(CHUNK) {
                let len = CHUNK.min(channels - from);
                let mut values = [0.0; CHUNK];
                sink.values(pixel, start + from, &row[from..][..len], &mut values);
                sink.store_values(from, &values[..len], channels, target);
            }
        }
    }
}

impl Sink<'_> {
    /// `clamp(scale * sum + bias + residual)` for some channels of a pixel.
    #[inline(always)]
    fn values(&self, pixel: usize, start: usize, sums: &[f32], values: &mut [f32; CHUNK]) {
        let (finish, len) = (self.finish, sums.len());
        let scales = &finish.scales[start..][..len];
        for ((value, sum), scale) in values.iter_mut().zip(sums).zip(scales) {
            *value = sum.to_bits().cast_signed() as f32 * (scale * self.factor);
        }
        if let Some(bias) = finish.bias {
            for (value, bias) in values.iter_mut().zip(&bias[start..][..len]) {
                *value += bias;
            }
        }
        match finish.residual {
            Some(Residual::Floats(residual)) => {
                let residual = &residual[pixel * self.columns + start..][..len];
                for (value, residual) in values.iter_mut().zip(residual) {
                    *value += residual;
                }
            }
            Some(Residual::Words(residual, quantization)) => {
                let row = &residual[pixel * words(self.columns)..][..words(self.columns)];
                for (value, &residual) in values.iter_mut().zip(&halves(row)[start..][..len]) {
                    *value += quantization.scale * f32::from(residual);
                }
            }
            None => {}
        }
        if let Some([low, high]) = finish.clamp {
            for value in values {
                *value = value.max(low).min(high);
            }
        }
    }

    /// Writes some channels, from the target's number `start` on, of which it has `channels`.
    #[inline(always)]
    fn store_values(&self, start: usize, values: &[f32], channels: usize, target: &mut [f32]) {
        let Some(quantization) = self.to else {
            target[start..][..values.len()].copy_from_slice(values);
            return;
        };
        let range = quantization.range();
        let target = halves_mut(target);
        for (to, &value) in target[start..].iter_mut().zip(values) {
            *to = nearest(value, quantization.scale, range);
        }
        if start + values.len() == channels && channels % 2 == 1 {
            target[channels] = 0;
        }
    }
}
