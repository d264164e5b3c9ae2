//! Sums and means over dimensions.

use super::dispatch::run;
use super::kernel;
use candle_core::{Result, Tensor};
use tallow_graph::{
    Op,
    op::{Mean, Sum},
};

/// Mean over `dims`, which stay as size 1 with `keep_dim`; PyTorch's `mean`.
///
/// # Errors
/// Where a dimension doesn't exist or is named twice, or none is named.
pub fn mean(xs: &Tensor, dims: &[usize], keep_dim: bool) -> Result<Tensor> {
    let op = Op::Mean(Mean {
        dims: dims.to_vec(),
        keep_dim,
    });
    let portable = || match keep_dim {
        true => xs.mean_keepdim(dims),
        false => xs.mean(dims),
    };
    let kernels = |[xs]: &[Tensor; 1], out: &[usize]| {
        let count: usize = dims.iter().map(|&dim| xs.dims()[dim]).product();
        kernel::sum(xs, dims, 1. / count as f64, out)
    };
    run(op, [xs], kernels, portable)
}

/// Sum over `dims`, which stay as size 1 with `keep_dim`; PyTorch's `sum`.
///
/// # Errors
/// As [`mean`].
pub fn sum(xs: &Tensor, dims: &[usize], keep_dim: bool) -> Result<Tensor> {
    let op = Op::Sum(Sum {
        dims: dims.to_vec(),
        keep_dim,
    });
    let portable = || match keep_dim {
        true => xs.sum_keepdim(dims),
        false => xs.sum(dims),
    };
    let kernels = |[xs]: &[Tensor; 1], out: &[usize]| kernel::sum(xs, dims, 1., out);
    run(op, [xs], kernels, portable)
}
