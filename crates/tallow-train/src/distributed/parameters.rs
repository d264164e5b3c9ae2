//! Parameters and buffers as bytes, to send them and to compare them.

use candle_core::{DType, Tensor};
use tallow_tensor::{Params, inplace};

use crate::{Error, Result};

/// All values in order, each in its own type; half precision as f32, which holds it exactly.
pub(super) fn to_bytes(params: &Params) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for entry in params {
        let values = entry.var.as_detached_tensor().flatten_all()?;
        match values.dtype() {
            DType::F64 => put(&mut bytes, values.to_vec1::<f64>()?, f64::to_le_bytes),
            DType::I64 => put(&mut bytes, values.to_vec1::<i64>()?, i64::to_le_bytes),
            DType::U32 => put(&mut bytes, values.to_vec1::<u32>()?, u32::to_le_bytes),
            _ => {
                let values = values.to_dtype(DType::F32)?.to_vec1::<f32>()?;
                put(&mut bytes, values, f32::to_le_bytes);
            }
        }
    }
    Ok(bytes)
}

/// Sets all values to what [`to_bytes`] gave on a rank with the same parameters.
pub(super) fn from_bytes(params: &Params, mut bytes: &[u8]) -> Result<()> {
    for entry in params {
        let var = &entry.var;
        let count = var.elem_count();
        let device = var.device();
        let values = match var.dtype() {
            DType::F64 => Tensor::new(take(&mut bytes, count, f64::from_le_bytes)?, device)?,
            DType::I64 => Tensor::new(take(&mut bytes, count, i64::from_le_bytes)?, device)?,
            DType::U32 => Tensor::new(take(&mut bytes, count, u32::from_le_bytes)?, device)?,
            other => {
                let values = take(&mut bytes, count, f32::from_le_bytes)?;
                Tensor::new(values, device)?.to_dtype(other)?
            }
        };
        var.set(&values.reshape(var.shape())?)?;
    }
    inplace::touch();
    Ok(())
}

fn put<T, const N: usize>(bytes: &mut Vec<u8>, values: Vec<T>, to: impl Fn(T) -> [u8; N]) {
    values.into_iter().for_each(|value| bytes.extend(to(value)));
}

fn take<T, const N: usize>(
    bytes: &mut &[u8],
    count: usize,
    from: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>> {
    let (chunks, _) = bytes.as_chunks::<N>();
    let found = chunks.len();
    let values = chunks.get(..count).ok_or_else(|| Error::Setting {
        what: "the parameters of rank 0",
        expected: format!("{count} more values"),
        found: found.to_string(),
    })?;
    let values = values.iter().map(|&value| from(value)).collect();
    *bytes = &bytes[count * N..];
    Ok(values)
}
