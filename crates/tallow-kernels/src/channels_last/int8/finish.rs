//! From exact sums to floats or to the next convolution's words, in one pass.

use std::ops::Range;

use super::words::{Quantization, halves, halves_mut, load, load_halves, store, words};
use crate::error::{Result, check_len};
use crate::shared::SharedMut;
use crate::simd::{Isa, LANES, dispatch};

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
            shifts: &[],
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
    /// What is added to each channel's sums, or nothing.
    shifts: &'a [f32],
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

impl<'a> Sink<'a> {
    /// Adds a whole number to each channel's sums, or nothing if there are none; where there are, sums are small enough to be
    /// exact as floats.
    pub(super) fn shift_by(&mut self, shifts: &'a [f32]) {
        self.shifts = shifts;
    }

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
            for from in (0..channels).step_by(LANES) {
                let sums = &row[from..channels.min(from + LANES)];
                let values = sink.values::<I>(pixel, start + from, sums);
                sink.store_values::<I>(values, from..from + sums.len(), target);
            }
            if sink.to.is_some() && channels % 2 == 1 {
                halves_mut(target)[channels] = 0;
            }
        }
    }
}

impl Sink<'_> {
    /// `clamp(scale * sum + bias + residual)` for at most [`LANES`] channels of a pixel.
    #[inline(always)]
    fn values<I: Isa>(&self, pixel: usize, start: usize, sums: &[f32]) -> I::Floats {
        let (finish, len) = (self.finish, sums.len());
        let scales = I::mul(
            load::<I>(&finish.scales[start..][..len]),
            I::splat(self.factor),
        );
        let mut sums = I::from_sums(load::<I>(sums));
        if !self.shifts.is_empty() {
            sums = I::add(sums, load::<I>(&self.shifts[start..][..len]));
        }
        let mut values = I::mul(sums, scales);
        if let Some(bias) = finish.bias {
            values = I::add(values, load::<I>(&bias[start..][..len]));
        }
        match finish.residual {
            Some(Residual::Floats(residual)) => {
                let residual = &residual[pixel * self.columns + start..][..len];
                values = I::add(values, load::<I>(residual));
            }
            Some(Residual::Words(residual, quantization)) => {
                let row = &residual[pixel * words(self.columns)..][..words(self.columns)];
                let numbers = load_halves::<I>(&halves(row)[start..][..len]);
                values = I::add(values, I::mul(numbers, I::splat(quantization.scale)));
            }
            None => {}
        }
        if let Some([low, high]) = finish.clamp {
            values = I::min(I::max(values, I::splat(low)), I::splat(high));
        }
        values
    }

    /// Writes some channels, counted from the first one of the target.
    #[inline(always)]
    fn store_values<I: Isa>(&self, values: I::Floats, channels: Range<usize>, target: &mut [f32]) {
        match self.to {
            None => store(&I::floats(values), &mut target[channels]),
            Some(quantization) => {
                let numbers = quantization.numbers::<I>(values);
                store(&numbers, &mut halves_mut(target)[channels]);
            }
        }
    }
}
