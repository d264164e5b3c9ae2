//! Pools and resizing.

use crate::golden::{Case, case, check_all, kinked};
use candle_core::{Result, Tensor};
use tallow_tensor::ops::{self, Interpolation, Pool2dConfig};

/// Kernel, stride, padding; square.
fn pool(kernel: usize, stride: usize, padding: usize, ceil_mode: bool) -> Pool2dConfig {
    Pool2dConfig {
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [padding; 2],
        ceil_mode,
    }
}

const UNEVEN: Pool2dConfig = Pool2dConfig {
    kernel: [3, 2],
    stride: [1, 2],
    padding: [1, 0],
    ceil_mode: false,
};

fn resize(x: &[Tensor], size: [usize; 2], align_corners: bool) -> Result<Tensor> {
    ops::interpolate(&x[0], size, Interpolation::Bilinear { align_corners })
}

pub(crate) const CASES: &[Case] = &[
    case("max_pool2d", |x| {
        ops::max_pool2d(&x[0], &Pool2dConfig::new(2))
    }),
    case("max_pool2d_stem", |x| {
        ops::max_pool2d(&x[0], &pool(3, 2, 1, false))
    }),
    case("max_pool2d_overlapping", |x| {
        ops::max_pool2d(&x[0], &pool(3, 1, 1, false))
    }),
    case("max_pool2d_uneven", |x| ops::max_pool2d(&x[0], &UNEVEN)),
    case("max_pool2d_ceil", |x| {
        ops::max_pool2d(&x[0], &pool(3, 2, 0, true))
    }),
    case("max_pool2d_ceil_pad", |x| {
        ops::max_pool2d(&x[0], &pool(2, 2, 1, true))
    }),
    kinked("max_pool2d_ties", |x| {
        ops::max_pool2d(&x[0], &pool(3, 2, 1, false))
    }),
    case("max_pool2d_negative", |x| {
        ops::max_pool2d(&x[0], &pool(3, 2, 1, false))
    }),
    case("avg_pool2d", |x| {
        ops::avg_pool2d(&x[0], &Pool2dConfig::new(2), true)
    }),
    case("avg_pool2d_overlapping", |x| {
        ops::avg_pool2d(&x[0], &pool(3, 1, 0, false), true)
    }),
    case("avg_pool2d_pad", |x| {
        ops::avg_pool2d(&x[0], &pool(3, 2, 1, false), true)
    }),
    case("avg_pool2d_pad_uncounted", |x| {
        ops::avg_pool2d(&x[0], &pool(3, 2, 1, false), false)
    }),
    case("avg_pool2d_ceil", |x| {
        ops::avg_pool2d(&x[0], &pool(3, 2, 0, true), true)
    }),
    case("avg_pool2d_ceil_pad", |x| {
        ops::avg_pool2d(&x[0], &pool(2, 2, 1, true), true)
    }),
    case("avg_pool2d_ceil_pad_uncounted", |x| {
        ops::avg_pool2d(&x[0], &pool(3, 2, 1, true), false)
    }),
    case("avg_pool2d_uneven", |x| {
        ops::avg_pool2d(&x[0], &UNEVEN, true)
    }),
    case("adaptive_avg_pool2d", |x| {
        ops::adaptive_avg_pool2d(&x[0], [3, 5])
    }),
    case("adaptive_avg_pool2d_global", |x| {
        ops::adaptive_avg_pool2d(&x[0], [1, 1])
    }),
    case("adaptive_avg_pool2d_larger", |x| {
        ops::adaptive_avg_pool2d(&x[0], [9, 8])
    }),
    case("adaptive_max_pool2d", |x| {
        ops::adaptive_max_pool2d(&x[0], [3, 5])
    }),
    case("adaptive_max_pool2d_larger", |x| {
        ops::adaptive_max_pool2d(&x[0], [9, 8])
    }),
    kinked("adaptive_max_pool2d_ties", |x| {
        ops::adaptive_max_pool2d(&x[0], [3, 2])
    }),
    case("interpolate_nearest_up", |x| {
        ops::interpolate(&x[0], [14, 19], Interpolation::Nearest)
    }),
    case("interpolate_nearest_down", |x| {
        ops::interpolate(&x[0], [3, 5], Interpolation::Nearest)
    }),
    case("interpolate_bilinear_up", |x| resize(x, [14, 19], false)),
    case("interpolate_bilinear_down", |x| resize(x, [3, 5], false)),
    case("interpolate_bilinear_corners", |x| resize(x, [14, 5], true)),
    case("interpolate_bilinear_one", |x| resize(x, [1, 1], true)),
];

#[test]
fn pools_and_resizing_match_pytorch_and_central_differences() {
    check_all(CASES);
}
