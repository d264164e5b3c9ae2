//! Resizing as two products with constant matrices.

use super::pooling::sandwich;
use crate::ops::Interpolation;
use candle_core::{Result, Tensor};

/// Resizes `xs` `[N, C, H, W]` to `size`.
pub(crate) fn interpolate(xs: &Tensor, size: [usize; 2], mode: Interpolation) -> Result<Tensor> {
    let (_, _, h, w) = xs.dims4()?;
    let rows = weights(size[0], h, mode, xs)?;
    let cols = weights(size[1], w, mode, xs)?;
    sandwich(xs, &rows, &cols)
}

/// Output x input weights along one axis.
fn weights(out: usize, input: usize, mode: Interpolation, like: &Tensor) -> Result<Tensor> {
    let mut weights = vec![0f64; out * input];
    for o in 0..out {
        let row = &mut weights[o * input..(o + 1) * input];
        match mode {
            Interpolation::Nearest => row[nearest(o, out, input)] = 1.,
            Interpolation::Bilinear { align_corners } => {
                let at = position(o, out, input, align_corners);
                let below = (at as usize).min(input - 1);
                let share = at - below as f64;
                row[below] += 1. - share;
                row[(below + 1).min(input - 1)] += share;
            }
        }
    }
    Tensor::from_vec(weights, (out, input), like.device())?.to_dtype(like.dtype())
}

/// PyTorch's `nearest`: `floor(o * in / out)` in single precision, as PyTorch computes it.
fn nearest(o: usize, out: usize, input: usize) -> usize {
    let scale = input as f32 / out as f32;
    ((o as f32 * scale) as usize).min(input - 1)
}

/// The input coordinate an output line reads, at pixel centres or with the corners aligned.
fn position(o: usize, out: usize, input: usize, align_corners: bool) -> f64 {
    if align_corners {
        let steps = out.saturating_sub(1).max(1) as f64;
        return o as f64 * input.saturating_sub(1) as f64 / steps;
    }
    ((o as f64 + 0.5) * input as f64 / out as f64 - 0.5).max(0.)
}
