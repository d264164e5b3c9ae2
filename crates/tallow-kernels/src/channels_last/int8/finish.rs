//! From exact sums to floats or to the next convolution's words, in one pass.

use super::words::{Quantization, halves, halves_mut, nearest, words};
use crate::error::{Result, check_len};
use crate::parallel;
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

    /// Finishes sums `[pixels, columns]` that are too large by `1 / factor`.
    pub(super) fn run(&self, sums: &[f32], columns: usize, factor: f32, y: Target<'_>) {
        let (values, to) = match y {
            Target::Floats(values) => (values, None),
            Target::Words(values, quantization) => (values, Some(quantization)),
        };
        let pixels = sums.len() / columns.max(1);
        let width = if to.is_some() {
            words(columns)
        } else {
            columns
        };
        let operands = parallel::rows(values, width);
        parallel::for_each(
            pixels,
            parallel::grain(columns),
            operands,
            |first, target| {
                let pass = Pass {
                    finish: self,
                    columns,
                    factor,
                    to,
                };
                finish_rows(pass, first, sums, target.data);
            },
        );
    }
}

/// What the loop over pixels needs.
#[derive(Clone, Copy)]
struct Pass<'a> {
    finish: &'a Finish<'a>,
    columns: usize,
    factor: f32,
    to: Option<Quantization>,
}

dispatch! {
    /// Pixels from `first` on.
    fn finish_rows<I>(pass: Pass<'_>, first: usize, sums: &[f32], target: &mut [f32]) -> () {
        let width = if pass.to.is_some() { words(pass.columns) } else { pass.columns };
        for (pixel, target) in (first..).zip(target.chunks_exact_mut(width)) {
            let sums = &sums[pixel * pass.columns..][..pass.columns];
            for start in (0..pass.columns).step_by(CHUNK) {
                let len = CHUNK.min(pass.columns - start);
                let mut values = [0.0; CHUNK];
                pass.values(pixel, start, &sums[start..][..len], &mut values);
                pass.store(start, &values[..len], target);
            }
        }
    }
}

impl Pass<'_> {
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

    /// Writes some channels of a pixel.
    #[inline(always)]
    fn store(&self, start: usize, values: &[f32], target: &mut [f32]) {
        let Some(quantization) = self.to else {
            target[start..][..values.len()].copy_from_slice(values);
            return;
        };
        let range = quantization.range();
        let target = halves_mut(target);
        for (to, &value) in target[start..].iter_mut().zip(values) {
            *to = nearest(value, quantization.scale, range);
        }
        if start + values.len() == self.columns && self.columns % 2 == 1 {
            target[self.columns] = 0;
        }
    }
}
