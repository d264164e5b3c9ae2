//! Operations that move elements without changing them; candle's own, whose gradients are right.

use super::dispatch::{invalid, plain};
use candle_core::{Result, Tensor};
use tallow_graph::{
    Op,
    op::{Concat, Expand, Permute, Reshape, Slice},
};

/// Joins values along `dim`; their other sizes are equal. PyTorch's `cat`.
///
/// # Errors
/// Where nothing is given or the sizes don't fit.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use tallow_tensor::ops;
///
/// let a = Tensor::zeros((2, 3), DType::F32, &Device::Cpu)?;
/// let b = Tensor::zeros((2, 5), DType::F32, &Device::Cpu)?;
/// assert_eq!(ops::concat(&[&a, &b], 1)?.dims(), [2, 8]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn concat(xs: &[&Tensor], dim: usize) -> Result<Tensor> {
    plain(Op::Concat(Concat { dim }), xs, || Tensor::cat(xs, dim))
}

/// The same elements, row-major, in another shape of as many elements. PyTorch's `reshape`.
///
/// # Errors
/// Where the numbers of elements differ.
pub fn reshape(xs: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let op = Op::Reshape(Reshape {
        shape: shape.to_vec(),
    });
    plain(op, &[xs], || xs.reshape(shape))
}

/// Joins all dimensions from `start_dim` on: `flatten(xs, 1)` makes `[N, C, H, W]` `[N, C * H * W]`.
///
/// # Errors
/// Where `xs` has no dimension `start_dim`.
pub fn flatten(xs: &Tensor, start_dim: usize) -> Result<Tensor> {
    let rank = xs.rank();
    if start_dim >= rank.max(1) {
        let op = Op::Reshape(Reshape { shape: Vec::new() });
        return Err(invalid(
            &op,
            &[xs],
            format!("x has {rank} dimensions, flattening is to start at number {start_dim}"),
            "start at an earlier one; 1 keeps the batch",
        ));
    }
    let (kept, joined) = xs.dims().split_at(start_dim);
    let shape: Vec<usize> = kept
        .iter()
        .copied()
        .chain([joined.iter().product()])
        .collect();
    reshape(xs, &shape)
}

/// Dimensions in another order: output dimension `i` is input dimension `dims[i]`. PyTorch's `permute`.
///
/// # Errors
/// Where `dims` doesn't name every dimension once.
pub fn permute(xs: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let op = Op::Permute(Permute {
        dims: dims.to_vec(),
    });
    plain(op, &[xs], || xs.permute(dims))
}

/// Swaps two dimensions. PyTorch's `transpose`.
///
/// # Errors
/// Where `xs` lacks one of the dimensions.
pub fn transpose(xs: &Tensor, dim1: usize, dim2: usize) -> Result<Tensor> {
    let swap = |dim: usize| match dim {
        _ if dim == dim1 => dim2,
        _ if dim == dim2 => dim1,
        _ => dim,
    };
    let rank = xs.rank().max(dim1 + 1).max(dim2 + 1);
    let dims: Vec<usize> = (0..rank).map(swap).collect();
    permute(xs, &dims)
}

/// Elements `start..end` of dimension `dim`. PyTorch's `narrow`, or `xs[.., start:end, ..]`.
///
/// # Errors
/// Where that is no range of the dimension.
pub fn slice(xs: &Tensor, dim: usize, start: usize, end: usize) -> Result<Tensor> {
    let op = Op::Slice(Slice {
        dim,
        start,
        end,
        step: 1,
    });
    plain(op, &[xs], || xs.narrow(dim, start, end - start))
}

/// Repeats dimensions of size 1, and adds leading ones, to reach `shape`. PyTorch's `expand`.
///
/// # Errors
/// Where another size would have to change.
pub fn expand(xs: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let op = Op::Expand(Expand {
        shape: shape.to_vec(),
    });
    plain(op, &[xs], || xs.broadcast_as(shape))
}
