//! Table look-up.

use super::dispatch::{invalid, run};
use super::kernel;
use candle_core::{DType, Result, Tensor};
use tallow_graph::Op;

/// Rows of `weight` `[V, D]` picked by `ids` (integers below `V`, any shape), giving `[ids.., D]`; PyTorch's
/// `embedding`. A row that is picked twice gets both gradients.
///
/// # Errors
/// Where `ids` aren't integers, or one of them isn't below `V` (checked on the CPU).
pub fn embedding(ids: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let kernels = |[_, table]: &[Tensor; 2], out: &[usize]| {
        let known = in_table(ids, weight)?;
        kernel::embedding(known, table, out)
    };
    run(Op::Embedding, [ids, weight], kernels, || {
        if ids.device().is_cpu() {
            in_table(ids, weight)?;
        }
        let mut shape = ids.dims().to_vec();
        shape.extend(&weight.dims()[1..]);
        weight
            .contiguous()?
            .index_select(&ids.flatten_all()?.to_dtype(DType::U32)?, 0)?
            .reshape(shape)
    })
}

/// The elements of `ids`, if all are rows of the table.
fn in_table(ids: &Tensor, weight: &Tensor) -> Result<Vec<u32>> {
    let rows = weight.dims().first().copied().unwrap_or(0);
    let known = ids.flatten_all()?.to_dtype(DType::I64)?.to_vec1::<i64>()?;
    let row = |id: i64| u32::try_from(id).ok().filter(|&id| (id as usize) < rows);
    known
        .into_iter()
        .map(|id| {
            row(id).ok_or_else(|| {
                invalid(
                    &Op::Embedding,
                    &[ids, weight],
                    format!("ids holds {id}, weight has rows 0..{rows}"),
                    "use ids below the number of rows, or a larger table",
                )
            })
        })
        .collect()
}
