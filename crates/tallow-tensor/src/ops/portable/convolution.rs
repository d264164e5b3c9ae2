//! Convolution through candle where its gradient holds, through gathered windows elsewhere.

use super::windows;
use crate::ops::Conv2dConfig;
use candle_core::{Result, Tensor};

/// 2-D cross-correlation of `xs` `[N, C, H, W]` with `weight` `[O, C/groups, kh, kw]`.
pub(crate) fn conv2d(
    xs: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    config: &Conv2dConfig,
) -> Result<Tensor> {
    let ys = if candle_is_exact(xs, weight, config)? {
        let Conv2dConfig {
            stride,
            padding,
            dilation,
            groups,
        } = *config;
        xs.contiguous()?.conv2d(
            &weight.contiguous()?,
            padding[0],
            stride[0],
            dilation[0],
            groups,
        )?
    } else {
        through_windows(xs, weight, config)?
    };
    match bias {
        Some(bias) => ys.broadcast_add(&bias.reshape((1, bias.elem_count(), 1, 1))?),
        None => Ok(ys),
    }
}

/// Whether candle's convolution takes this geometry and its backward is right.
///
/// It knows one stride, padding and dilation for both axes, and derives the data gradient's output
/// padding from the height alone, so both axes must leave the same number of input lines unread.
fn candle_is_exact(xs: &Tensor, weight: &Tensor, config: &Conv2dConfig) -> Result<bool> {
    let symmetric = |pair: [usize; 2]| pair[0] == pair[1];
    if !(symmetric(config.stride) && symmetric(config.padding) && symmetric(config.dilation)) {
        return Ok(false);
    }
    let (_, _, h, w) = xs.dims4()?;
    let (_, _, kh, kw) = weight.dims4()?;
    let unread = |input: usize, kernel: usize| {
        (input + 2 * config.padding[0] - config.dilation[0] * (kernel - 1) - 1) % config.stride[0]
    };
    let (unread_h, unread_w) = (unread(h, kh), unread(w, kw));
    Ok(unread_h == unread_w && unread_h <= h && unread_w <= w)
}

/// Any geometry: pad, gather windows, one batched matrix product.
fn through_windows(xs: &Tensor, weight: &Tensor, config: &Conv2dConfig) -> Result<Tensor> {
    let Conv2dConfig {
        stride,
        padding,
        dilation,
        groups,
    } = *config;
    let (n, c, h, w) = xs.dims4()?;
    let (o, _, kh, kw) = weight.dims4()?;
    let padded = xs
        .pad_with_zeros(2, padding[0], padding[0])?
        .pad_with_zeros(3, padding[1], padding[1])?;
    let out = |axis: usize, input: usize, kernel: usize| {
        (input + 2 * padding[axis] - dilation[axis] * (kernel - 1) - 1) / stride[axis] + 1
    };
    let (oh, ow) = (out(0, h, kh), out(1, w, kw));
    let rows = windows::strided(oh, kh, stride[0], dilation[0]);
    let cols = windows::strided(ow, kw, stride[1], dilation[1]);
    let depth = c / groups * kh * kw;
    let columns = windows::gather(&padded, &rows, &cols)?.reshape((n, groups, depth, oh * ow))?;
    let weight = weight
        .reshape((1, groups, o / groups, depth))?
        .broadcast_as((n, groups, o / groups, depth))?
        .contiguous()?;
    weight.matmul(&columns)?.reshape((n, o, oh, ow))
}
