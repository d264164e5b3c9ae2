//! From tensors to what a plan reads: parameters by name, inputs by type.

use std::collections::HashMap;

use candle_core::{DType, Tensor};
use tallow_graph::TensorType;
use tallow_tensor::{convert, inplace};

use crate::lower::Value;
use crate::{Error, Result};

/// The tensors of a plan's parameters, in its order.
pub(crate) fn parameters(
    names: &[String],
    tensors: &HashMap<String, Tensor>,
) -> Result<Vec<Tensor>> {
    let find = |name: &String| {
        let tensor = tensors.get(name).ok_or_else(|| Error::Unsupported {
            operation: format!("parameter `{name}`"),
            module: String::new(),
            problem: "is in the graph but not in the model".into(),
            remedy: "compile the model again after changing its structure",
        })?;
        check_supported(name, tensor)?;
        Ok(tensor.clone())
    };
    names.iter().map(find).collect()
}

fn check_supported(name: &str, tensor: &Tensor) -> Result<()> {
    if inplace::is_supported(tensor) {
        return Ok(());
    }
    Err(Error::Input {
        name: name.to_string(),
        found: format!(
            "{} on {:?}{}",
            tensor.dtype().as_str(),
            tensor.device().location(),
            if tensor.is_contiguous() {
                ""
            } else {
                ", not contiguous"
            }
        ),
        expected: "contiguous f32 on the CPU",
    })
}

/// The types of what a caller feeds: what plans are told apart by.
pub(crate) fn signature(inputs: &[&Tensor]) -> Result<Vec<TensorType>> {
    let types = inputs.iter().map(|tensor| convert::tensor_type(tensor));
    Ok(types.collect::<tallow_tensor::Result<_>>()?)
}

/// An input, ready to be read.
pub(crate) enum Fed {
    Floats(Tensor),
    Ints(Vec<i64>),
}

/// Brings what a caller feeds into the form that plans read.
pub(crate) fn feed(name: &str, tensor: &Tensor) -> Result<Fed> {
    if !tensor.device().is_cpu() {
        return Err(Error::Input {
            name: name.to_string(),
            found: format!("on {:?}", tensor.device().location()),
            expected: "tensors on the CPU",
        });
    }
    match tensor.dtype() {
        DType::F32 => Ok(Fed::Floats(tensor.contiguous()?)),
        DType::U8 | DType::U32 | DType::I64 => {
            let ints = tensor.to_dtype(DType::I64)?.flatten_all()?;
            Ok(Fed::Ints(ints.to_vec1()?))
        }
        other => Err(Error::Input {
            name: name.to_string(),
            found: other.as_str().to_string(),
            expected: "f32, or integers as u8, u32 or i64",
        }),
    }
}

/// Calls `f` with what was fed.
pub(crate) fn with_inputs<R>(fed: &[Fed], f: impl FnOnce(&[Value<'_>]) -> R) -> Result<R> {
    let tensors = fed.iter().filter_map(|fed| match fed {
        Fed::Floats(tensor) => Some(tensor.clone()),
        Fed::Ints(_) => None,
    });
    let tensors: Vec<Tensor> = tensors.collect();
    Ok(inplace::read_all(&tensors, |slices| {
        let mut slices = slices.iter();
        let mut values: Vec<Value<'_>> = Vec::with_capacity(fed.len());
        for fed in fed {
            values.push(match fed {
                Fed::Floats(_) => Value::Floats(slices.next().copied().unwrap_or(&[])),
                Fed::Ints(ints) => Value::Ints(ints),
            });
        }
        f(&values)
    })?)
}
