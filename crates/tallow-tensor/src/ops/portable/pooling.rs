//! Pools: averages as two products with constant matrices, maxima by gathering the first maximum.

use super::windows::{self, Taps};
use candle_core::{DType, Result, Tensor};
use std::ops::Range;

/// Weights of an averaging pool along one axis: output x input, row-major.
pub(crate) struct Averages {
    /// Input ranges, one an output.
    pub(crate) ranges: Vec<Range<usize>>,
    /// What each output divides its sum by.
    pub(crate) divisors: Vec<usize>,
    /// Length of the input axis.
    pub(crate) input: usize,
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
pub(crate) fn average(xs: &Tensor, rows: &Averages, cols: &Averages) -> Result<Tensor> {
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
pub(crate) fn maximum(xs: &Tensor, rows: &[Range<usize>], cols: &[Range<usize>]) -> Result<Tensor> {
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
