//! Convolution over strides, paddings, dilations and groups.

use crate::golden::{Case, case, check_all};
use candle_core::{Result, Tensor};
use tallow_tensor::ops::{self, Conv2dConfig};

fn conv(
    x: &[Tensor],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
) -> Result<Tensor> {
    let config = Conv2dConfig {
        stride,
        padding,
        dilation,
        groups,
    };
    ops::conv2d(&x[0], &x[1], x.get(2), &config)
}

pub(crate) const CASES: &[Case] = &[
    case("conv2d", |x| conv(x, [1, 1], [1, 1], [1, 1], 1)),
    case("conv2d_no_bias", |x| conv(x, [1, 1], [1, 1], [1, 1], 1)),
    case("conv2d_pointwise", |x| conv(x, [1, 1], [0, 0], [1, 1], 1)),
    case("conv2d_pointwise_stride", |x| {
        conv(x, [2, 2], [0, 0], [1, 1], 1)
    }),
    case("conv2d_stride", |x| conv(x, [2, 2], [1, 1], [1, 1], 1)),
    case("conv2d_unread_lines", |x| {
        conv(x, [2, 2], [0, 0], [1, 1], 1)
    }),
    case("conv2d_stem", |x| conv(x, [2, 2], [3, 3], [1, 1], 1)),
    case("conv2d_dilation", |x| conv(x, [1, 1], [2, 2], [2, 2], 1)),
    case("conv2d_groups", |x| conv(x, [1, 1], [1, 1], [1, 1], 2)),
    case("conv2d_depthwise", |x| conv(x, [1, 1], [1, 1], [1, 1], 5)),
    case("conv2d_depthwise_stride", |x| {
        conv(x, [2, 2], [1, 1], [1, 1], 5)
    }),
    case("conv2d_uneven", |x| conv(x, [2, 1], [0, 2], [1, 2], 1)),
    case("conv2d_more_padding_than_input", |x| {
        conv(x, [3, 3], [1, 1], [1, 1], 1)
    }),
    case("conv2d_many_channels", |x| {
        conv(x, [1, 1], [1, 1], [1, 1], 1)
    }),
    case("conv2d_patches", |x| conv(x, [4, 4], [0, 0], [1, 1], 1)),
];

#[test]
fn convolutions_match_pytorch_and_central_differences() {
    check_all(CASES);
}
