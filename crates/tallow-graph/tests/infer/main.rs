//! What operations give for which inputs, and how they refuse.
//!
//! One row a case: the operation, the input types and the type that must come out, or what the error must say.

use tallow_graph::{DType, Op, TensorType};

mod costs;
mod layers;
mod values;

/// A type from its text, such as `f32[2, 3]`.
pub(crate) fn ty(text: &str) -> TensorType {
    let (dtype, shape) = text.split_once('[').unwrap_or((text, "]"));
    let dtypes = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::U8,
        DType::U32,
        DType::I64,
    ];
    let dtype = dtypes.into_iter().find(|d| d.name() == dtype);
    let sizes = shape
        .trim_end_matches(']')
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty());
    let shape: Vec<usize> = sizes
        .map(|s| s.parse().unwrap_or_else(|_| panic!("size {s}")))
        .collect();
    TensorType::new(dtype.unwrap_or_else(|| panic!("type {text}")), shape)
}

/// Splits `f32[2, 3] u32[2]` at its types.
pub(crate) fn types(text: &str) -> Vec<TensorType> {
    let closed = text.split_inclusive(']').map(str::trim);
    closed.filter(|t| !t.is_empty()).map(ty).collect()
}

/// Every row must give its type.
pub(crate) fn check(rows: &[(Op, &str, &str)]) {
    for (op, inputs, expected) in rows {
        let found = op.infer(&types(inputs));
        let found = found.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found, ty(expected), "{op:?} of {inputs}");
    }
}

/// Every row must be refused with a message that names the operation, all types given, and each of the words.
pub(crate) fn refuse(rows: &[(Op, &str, &[&str])]) {
    for (op, inputs, words) in rows {
        let Err(error) = op.infer(&types(inputs)) else {
            panic!("{op:?} took {inputs}");
        };
        let text = error.to_string();
        assert!(text.starts_with(&format!("{}(", op.name())), "{text}");
        for input in types(inputs) {
            assert!(
                text.contains(&input.to_string()),
                "{text} doesn't show {input}"
            );
        }
        for word in *words {
            assert!(text.contains(word), "{text} doesn't say {word}");
        }
    }
}
