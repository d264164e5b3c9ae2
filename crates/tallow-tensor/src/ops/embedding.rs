//! Table look-up.

use super::dispatch::{invalid, plain};
use candle_core::{DType, Result, Tensor};
use tallow_graph::Op;

/// Rows of `weight` `[V, D]` picked by `ids` (integers below `V`, any shape), giving `[ids.., D]`; PyTorch's
/// `embedding`. A row that is picked twice gets both gradients.
///
/// # Errors
/// Where `ids` aren't integers, or one of them isn't below `V` (checked on the CPU).
pub fn embedding(ids: &Tensor, weight: &Tensor) -> Result<Tensor> {
    plain(Op::Embedding, &[ids, weight], || {
        let rows = weight.dims().first().copied().unwrap_or(0);
        let flat = ids.flatten_all()?;
        if ids.device().is_cpu() {
            let known = flat.to_dtype(DType::I64)?.to_vec1::<i64>()?;
            let fits = |&id: &i64| usize::try_from(id).is_ok_and(|id| id < rows);
            if let Some(id) = known.into_iter().find(|id| !fits(id)) {
                return Err(invalid(
                    &Op::Embedding,
                    &[ids, weight],
                    format!("ids holds {id}, weight has rows 0..{rows}"),
                    "use ids below the number of rows, or a larger table",
                ));
            }
        }
        let mut shape = ids.dims().to_vec();
        shape.extend(&weight.dims()[1..]);
        weight
            .contiguous()?
            .index_select(&flat.to_dtype(DType::U32)?, 0)?
            .reshape(shape)
    })
}
