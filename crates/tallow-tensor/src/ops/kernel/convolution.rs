//! Convolution and its three gradients.

use candle_core::{Error, Result, Tensor};
use tallow_kernels::conv::{self, Conv2dGeometry};
use tallow_kernels::workspace::Workspace;

use super::Kernel;
use crate::ops::Conv2dConfig;

/// `xs` `[N, C, H, W]`, `weight` `[O, C / groups, kh, kw]`, optional bias `[O]`.
pub(crate) fn conv2d(
    xs: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    config: &Conv2dConfig,
    out: &[usize],
) -> Result<Tensor> {
    let geometry = geometry(xs, weight, config)?;
    let scratch = Workspace::global;
    match bias {
        None => Kernel::new(
            "conv2d",
            out,
            move |[x, w], y| conv::forward(&geometry, x, w, None, y, scratch()),
            move |b| {
                let [x, w] = b.inputs;
                Ok([
                    b.gradient(0, |dx| {
                        conv::backward_input(&geometry, w, b.grad, dx, scratch())
                    })?,
                    b.gradient(1, |dw| {
                        conv::backward_weight(&geometry, x, b.grad, dw, scratch())
                    })?,
                ])
            },
        )
        .apply([xs, weight]),
        Some(bias) => Kernel::new(
            "conv2d",
            out,
            move |[x, w, bias], y| conv::forward(&geometry, x, w, Some(bias), y, scratch()),
            move |b| {
                let [x, w, _] = b.inputs;
                Ok([
                    b.gradient(0, |dx| {
                        conv::backward_input(&geometry, w, b.grad, dx, scratch())
                    })?,
                    b.gradient(1, |dw| {
                        conv::backward_weight(&geometry, x, b.grad, dw, scratch())
                    })?,
                    b.gradient(2, |db| conv::backward_bias(&geometry, b.grad, db))?,
                ])
            },
        )
        .apply([xs, weight, bias]),
    }
}

fn geometry(xs: &Tensor, weight: &Tensor, config: &Conv2dConfig) -> Result<Conv2dGeometry> {
    let (batch, in_channels, height, width) = xs.dims4()?;
    let (out_channels, _, kh, kw) = weight.dims4()?;
    Conv2dGeometry::new(
        batch,
        in_channels,
        [height, width],
        out_channels,
        [kh, kw],
        config.stride,
        config.padding,
        config.dilation,
        config.groups,
    )
    .map_err(Error::wrap)
}
