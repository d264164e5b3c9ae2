//! Matrix products.

use candle_core::{Result, Tensor};

/// `xs W^T + b` for `xs` `[.., I]` and `weight` `[O, I]`.
pub(crate) fn linear(xs: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (out_features, in_features) = weight.dims2()?;
    let rows = xs.elem_count() / in_features.max(1);
    let mut shape = xs.dims().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = out_features;
    }
    let ys = xs
        .reshape((rows, in_features))?
        .matmul(&weight.t()?)?
        .reshape(shape)?;
    match bias {
        Some(bias) => ys.broadcast_add(bias),
        None => Ok(ys),
    }
}

/// Batched product; leading dimensions broadcast.
pub(crate) fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.contiguous()?.broadcast_matmul(&b.contiguous()?)
}

/// `softmax(scale q k^T) v` over the last two dimensions.
pub(crate) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, scale: f64) -> Result<Tensor> {
    let keys = k.transpose(k.rank() - 2, k.rank() - 1)?;
    let scores = (matmul(q, &keys)? * scale)?;
    let last = scores.rank() - 1;
    matmul(&super::loss::softmax(&scores, last)?, v)
}
