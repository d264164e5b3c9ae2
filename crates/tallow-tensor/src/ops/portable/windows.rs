//! Sliding windows as gathered copies: the base of pooling and of convolutions candle can't do.
//!
//! `index_select` has an exact gradient (an accumulating scatter), so whatever is computed from
//! windows needs no backward rule of its own.

use candle_core::{Device, Result, Tensor};

/// The input positions that each output position reads along one axis: `positions[output][tap]`.
/// Every output has the same number of taps.
pub(crate) type Taps = Vec<Vec<usize>>;

/// Taps of a convolution over an axis that already holds its padding.
pub(crate) fn strided(out: usize, kernel: usize, stride: usize, dilation: usize) -> Taps {
    (0..out)
        .map(|o| (0..kernel).map(|k| o * stride + k * dilation).collect())
        .collect()
}

/// Fills each range up to `width` taps by repeating its last position.
///
/// For a maximum the repeats change nothing: they come after the original, and the first maximum
/// takes the gradient.
pub(crate) fn repeat_last(ranges: &[std::ops::Range<usize>]) -> Taps {
    let width = ranges.iter().map(std::ops::Range::len).max().unwrap_or(0);
    ranges
        .iter()
        .map(|range| {
            (0..width)
                .map(|k| (range.start + k).min(range.end.saturating_sub(1)))
                .collect()
        })
        .collect()
}

/// Windows of `xs` `[N, C, H, W]` as `[N, C, taps, positions]`, both row-major.
pub(crate) fn gather(xs: &Tensor, rows: &Taps, cols: &Taps) -> Result<Tensor> {
    let (n, c, _, _) = xs.dims4()?;
    let (oh, ow) = (rows.len(), cols.len());
    let kh = rows.first().map_or(0, Vec::len);
    let kw = cols.first().map_or(0, Vec::len);
    xs.contiguous()?
        .index_select(&tap_major(rows, xs.device())?, 2)?
        .index_select(&tap_major(cols, xs.device())?, 3)?
        .reshape((n, c, kh, oh, kw, ow))?
        .permute((0, 1, 2, 4, 3, 5))?
        .reshape((n, c, kh * kw, oh * ow))
}

/// Positions ordered by tap first, output second, as a `u32` index tensor.
fn tap_major(taps: &Taps, device: &Device) -> Result<Tensor> {
    let width = taps.first().map_or(0, Vec::len);
    let ids: Vec<u32> = (0..width)
        .flat_map(|k| taps.iter().map(move |window| window[k] as u32))
        .collect();
    let len = ids.len();
    Tensor::from_vec(ids, len, device)
}
