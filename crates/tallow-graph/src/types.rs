//! Element types and tensor types: what a value looks like, never what it holds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32-bit float, the type that models train in.
    F32,
    /// 64-bit float, the type that gradients are checked in.
    F64,
    /// 16-bit IEEE float.
    F16,
    /// 16-bit brain float.
    BF16,
    /// Unsigned byte.
    U8,
    /// Unsigned 32-bit integer: class indices and token ids.
    U32,
    /// Signed 64-bit integer: PyTorch's class indices.
    I64,
}

impl DType {
    /// The size of one element in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::U32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// Whether elements are floating-point numbers, which is what arithmetic layers ask for.
    pub fn is_float(self) -> bool {
        match self {
            Self::F32 | Self::F64 | Self::F16 | Self::BF16 => true,
            Self::U8 | Self::U32 | Self::I64 => false,
        }
    }

    /// The lower-case name: `f32`, `bf16`, `u32`, ...
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::I64 => "i64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The shape and element type of a value, written `f32[1, 3, 224, 224]`.
///
/// ```
/// use tallow_graph::{DType, TensorType};
///
/// let image = TensorType::new(DType::F32, [1, 3, 224, 224]);
/// assert_eq!(image.to_string(), "f32[1, 3, 224, 224]");
/// assert_eq!(image.elements(), 150_528);
/// assert_eq!(image.bytes(), 602_112);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorType {
    /// Sizes, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// The type of the elements.
    pub dtype: DType,
}

impl TensorType {
    /// A type from its parts.
    pub fn new(dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        Self {
            shape: shape.into(),
            dtype,
        }
    }

    /// A 32-bit float type, the usual case.
    pub fn f32(shape: impl Into<Vec<usize>>) -> Self {
        Self::new(DType::F32, shape)
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements; `u64::MAX` where the product would be larger than that.
    pub fn elements(&self) -> u64 {
        self.shape
            .iter()
            .fold(1u64, |product, &size| product.saturating_mul(size as u64))
    }

    /// The size of the elements in bytes; `u64::MAX` where it would be larger than that.
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.dtype.size() as u64)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// What an operation reads and gives, as profilers list it: `[8, 3, 32, 32], [16, 3, 3, 3] -> [8, 16, 32, 32]`.
///
/// Element types are written where they aren't `f32`.
///
/// ```
/// use tallow_graph::{DType, TensorType, types};
///
/// let ids = TensorType::new(DType::U32, [8]);
/// let rows = TensorType::f32([8, 16]);
/// assert_eq!(types::signature([&ids], &rows), "u32[8] -> [8, 16]");
/// ```
pub fn signature<'a>(
    inputs: impl IntoIterator<Item = &'a TensorType>,
    output: &TensorType,
) -> String {
    use fmt::Write as _;
    let mut text = String::with_capacity(64);
    let write = |text: &mut String, ty: &TensorType| {
        // Writing to a string can't fail.
        let _ = match ty.dtype {
            DType::F32 => write!(text, "{:?}", ty.shape),
            dtype => write!(text, "{dtype}{:?}", ty.shape),
        };
    };
    for ty in inputs {
        if !text.is_empty() {
            text.push_str(", ");
        }
        write(&mut text, ty);
    }
    text.push_str(if text.is_empty() { "-> " } else { " -> " });
    write(&mut text, output);
    text
}
