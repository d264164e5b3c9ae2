//! candle's types as the graph names them.

use candle_core::Tensor;
use tallow_graph::{DType, TensorType};

use crate::{Error, Result};

/// The graph's name of an element type.
///
/// # Errors
/// [`Error::DType`] for types that no operation works on (8-bit floats, 16- and 32-bit signed integers, ...).
pub fn dtype(of: candle_core::DType) -> Result<DType> {
    match of {
        candle_core::DType::F32 => Ok(DType::F32),
        candle_core::DType::F64 => Ok(DType::F64),
        candle_core::DType::F16 => Ok(DType::F16),
        candle_core::DType::BF16 => Ok(DType::BF16),
        candle_core::DType::U8 => Ok(DType::U8),
        candle_core::DType::U32 => Ok(DType::U32),
        candle_core::DType::I64 => Ok(DType::I64),
        other => Err(Error::DType {
            what: format!("a value in module `{}`", crate::scope::path()),
            dtype: other,
        }),
    }
}

/// The type of a tensor.
///
/// # Errors
/// As [`dtype`].
pub fn tensor_type(of: &Tensor) -> Result<TensorType> {
    Ok(TensorType::new(dtype(of.dtype())?, of.dims()))
}

/// candle's type for the graph's name of it.
pub fn candle_dtype(of: DType) -> candle_core::DType {
    match of {
        DType::F32 => candle_core::DType::F32,
        DType::F64 => candle_core::DType::F64,
        DType::F16 => candle_core::DType::F16,
        DType::BF16 => candle_core::DType::BF16,
        DType::U8 => candle_core::DType::U8,
        DType::U32 => candle_core::DType::U32,
        DType::I64 => candle_core::DType::I64,
    }
}
