//! Pools: averages as two products with constant matrices, maxima by gathering the first maximum.

use super::windows::{self, Taps};
use crate::ops::Pool2dConfig;
use candle_core::{DType, Result, Tensor};
use std::ops::Range;

/// Maximum over sliding windows.
pub(crate) fn max_pool2d(xs: &Tensor, config: &Pool2dConfig) -> Result<Tensor> {
    let (_, _, h, w) = xs.dims4()?;
    let inside =
        |axis: usize, input: usize| inside(&sliding(config, axis, input), config, axis, input);
    maximum(xs, &inside(0, h), &inside(1, w))
}

/// Maximum over adaptive windows.
pub(crate) fn adaptive_max_pool2d(xs: &Tensor, out: [usize; 2]) -> Result<Tensor> {
    let (_, _, h, w) = xs.dims4()?;
    maximum(xs, &adaptive(h, out[0]), &adaptive(w, out[1]))
}

/// Mean over sliding windows.
pub(crate) fn avg_pool2d(
    xs: &Tensor,
    config: &Pool2dConfig,
    count_include_pad: bool,
) -> Result<Tensor> {
    let (_, _, h, w) = xs.dims4()?;
    let averages = |axis: usize, input: usize| {
        let windows = sliding(config, axis, input);
        let ranges = inside(&windows, config, axis, input);
        let counted = if count_include_pad { &windows } else { &ranges };
        Averages {
            divisors: counted.iter().map(Range::len).collect(),
            ranges,
            input,
        }
    };
    average(xs, &averages(0, h), &averages(1, w))
}

/// Mean over adaptive windows.
pub(crate) fn adaptive_avg_pool2d(xs: &Tensor, out: [usize; 2]) -> Result<Tensor> {
    let (_, _, h, w) = xs.dims4()?;
    let averages = |input: usize, out: usize| {
        let ranges = adaptive(input, out);
        Averages {
            divisors: ranges.iter().map(Range::len).collect(),
            ranges,
            input,
        }
    };
    average(xs, &averages(h, out[0]), &averages(w, out[1]))
}

/// Where each window along `axis` starts and ends, counted from the start of the padding and cut at its end.
fn sliding(config: &Pool2dConfig, axis: usize, input: usize) -> Vec<Range<usize>> {
    let (kernel, stride) = (config.kernel[axis], config.stride[axis]);
    let padded = input + 2 * config.padding[axis];
    // With `ceil_mode` a last window may overhang, if the one before left something over and it starts inside the input
    // or the padding before it.
    let overhangs =
        |start: usize| start + kernel < padded + stride && start < input + config.padding[axis];
    let counts = |start: usize| start + kernel <= padded || (config.ceil_mode && overhangs(start));
    (0..)
        .map(|o| o * stride)
        .take_while(|&start| counts(start))
        .map(|start| start..(start + kernel).min(padded))
        .collect()
}

/// The parts of windows that lie in the input.
fn inside(
    windows: &[Range<usize>],
    config: &Pool2dConfig,
    axis: usize,
    input: usize,
) -> Vec<Range<usize>> {
    let shift = |position: usize| position.saturating_sub(config.padding[axis]).min(input);
    windows
        .iter()
        .map(|w| shift(w.start)..shift(w.end))
        .collect()
}

/// Output `i` of `out` reads `floor(i in / out) .. ceil((i + 1) in / out)`.
fn adaptive(input: usize, out: usize) -> Vec<Range<usize>> {
    (0..out)
        .map(|o| o * input / out..((o + 1) * input).div_ceil(out))
        .collect()
}

/// Weights of an averaging pool along one axis: output x input, row-major.
struct Averages {
    /// Input ranges, one an output.
    ranges: Vec<Range<usize>>,
    /// What each output divides its sum by.
    divisors: Vec<usize>,
    /// Length of the input axis.
    input: usize,
}

impl Averages {
    fn matrix(&self, like: &Tensor) -> Result<Tensor> {
        let mut weights = vec![0f64; self.ranges.len() * self.input];
        for (o, (range, &divisor)) in self.ranges.iter().zip(&self.divisors).enumerate() {
            weights[o * self.input..][range.clone()].fill(1. / divisor as f64);
        }
        Tensor::from_vec(weights, (self.ranges.len(), self.input), like.device())?
            .to_dtype(like.dtype())
    }
}

/// Averages windows of `xs` `[N, C, H, W]`: the weight of a window is the product of its axes'.
fn average(xs: &Tensor, rows: &Averages, cols: &Averages) -> Result<Tensor> {
    sandwich(xs, &rows.matrix(xs)?, &cols.matrix(xs)?)
}

/// `rows [oh, h] x xs [N, C, h, w] x cols [ow, w]^T`.
pub(crate) fn sandwich(xs: &Tensor, rows: &Tensor, cols: &Tensor) -> Result<Tensor> {
    let (n, c, h, w) = xs.dims4()?;
    let (oh, ow) = (rows.dim(0)?, cols.dim(0)?);
    let rows = rows.broadcast_as((n * c, oh, h))?.contiguous()?;
    let narrow = xs.reshape((n * c * h, w))?.matmul(&cols.t()?)?;
    rows.matmul(&narrow.reshape((n * c, h, ow))?)?
        .reshape((n, c, oh, ow))
}

/// Maximum of each window; the gradient goes to the first maximum, as in PyTorch.
fn maximum(xs: &Tensor, rows: &[Range<usize>], cols: &[Range<usize>]) -> Result<Tensor> {
    let (n, c, _, _) = xs.dims4()?;
    let (row_taps, col_taps): (Taps, Taps) =
        (windows::repeat_last(rows), windows::repeat_last(cols));
    let values = windows::gather(xs, &row_taps, &col_taps)?;
    values
        .gather(&first_maximum(&values.detach())?, 2)?
        .reshape((n, c, rows.len(), cols.len()))
}

/// Index of the first maximum along dimension 2, written without `argmax`, whose choice among ties
/// differs by device.
fn first_maximum(values: &Tensor) -> Result<Tensor> {
    let taps = values.dim(2)?;
    let below = values.broadcast_lt(&values.max_keepdim(2)?)?;
    let order = Tensor::arange(0u32, taps as u32, values.device())?
        .reshape((1, 1, taps, 1))?
        .broadcast_as(values.shape())?;
    let past_end = Tensor::full(taps as u32, values.shape(), values.device())?;
    below
        .where_cond(&past_end, &order)?
        .to_dtype(DType::U32)?
        .min_keepdim(2)?
        .contiguous()
}
