//! Table look-up.

use candle_core::{Result, Tensor};
use std::sync::Arc;
use tallow_kernels::embedding;

use super::Kernel;

/// Rows of `weight` `[V, D]` picked by `ids`, which are all below `V`.
pub(crate) fn embedding(ids: Vec<u32>, weight: &Tensor, out: &[usize]) -> Result<Tensor> {
    let (rows, width) = weight.dims2()?;
    let table = [rows, width];
    let ids: Arc<[u32]> = ids.into();
    let recall = ids.clone();
    Kernel::new(
        "embedding",
        out,
        move |[weight], y| embedding::embedding(table, &ids, weight, y),
        move |b| {
            Ok([b.gradient(0, |dw| {
                embedding::embedding_backward(table, &recall, b.grad, dw)
            })?])
        },
    )
    .apply([weight])
}
