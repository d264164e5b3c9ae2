//! Operations that read nothing: inputs, parameters, constants.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// A value that the caller feeds at every run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// The argument's name; unique among inputs.
    pub name: String,
    /// Its type; a graph is made for exactly this one.
    #[serde(flatten)]
    pub ty: TensorType,
}

/// A named parameter or buffer of the model. Its value is not part of the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Param {
    /// The name in the state dict, such as `layer1.0.conv1.weight`; unique among parameters.
    pub name: String,
    /// Its type.
    #[serde(flatten)]
    pub ty: TensorType,
    /// Who changes it.
    pub kind: ParamKind,
}

/// Who changes a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamKind {
    /// The optimizer.
    Trainable,
    /// Nobody: a parameter that is kept as it is.
    Frozen,
    /// The model itself while it trains: the running statistics of batch normalisation.
    Buffer,
}

/// A value that is part of the graph and the same in every run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Constant {
    /// The value.
    pub value: Literal,
}

/// A tensor's type and its elements as little-endian bytes, row-major. Cheap to clone.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Literal {
    /// Shape and element type.
    #[serde(flatten)]
    pub ty: TensorType,
    /// The elements; written as hexadecimal digits in the serde form.
    #[serde(serialize_with = "write_hex", deserialize_with = "read_hex")]
    pub bytes: Arc<[u8]>,
}

impl Literal {
    /// A literal of 32-bit floats.
    ///
    /// ```
    /// use tallow_graph::op::Literal;
    ///
    /// let mean = Literal::from_f32([3], &[0.5, 0.25, 0.125]);
    /// assert_eq!(mean.ty.to_string(), "f32[3]");
    /// assert_eq!(mean.bytes.len(), 12);
    /// ```
    pub fn from_f32(shape: impl Into<Vec<usize>>, values: &[f32]) -> Self {
        Self {
            ty: TensorType::f32(shape),
            bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Literal({}, {} bytes)", self.ty, self.bytes.len())
    }
}

fn write_hex<S: Serializer>(bytes: &Arc<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes
        .iter()
        .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
        .map(char::from);
    serializer.serialize_str(&digits.collect::<String>())
}

fn read_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[u8]>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()
        .map(Arc::from)
        .ok_or_else(|| {
            serde::de::Error::custom("a literal's bytes are pairs of hexadecimal digits")
        })
}

impl Rule for Input {
    fn name(&self) -> &'static str {
        "input"
    }

    fn signature(&self) -> Signature {
        Signature::of(&[])
    }

    fn infer(&self, _inputs: &[TensorType]) -> Result<TensorType, Problem> {
        Ok(self.ty.clone())
    }

    fn flops(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show_bare(&self.name);
    }
}

impl Rule for Param {
    fn name(&self) -> &'static str {
        "param"
    }

    fn signature(&self) -> Signature {
        Signature::of(&[])
    }

    fn infer(&self, _inputs: &[TensorType]) -> Result<TensorType, Problem> {
        Ok(self.ty.clone())
    }

    fn flops(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show_bare(&self.name);
        list.show_unless("kind", self.kind, ParamKind::Trainable);
    }
}

impl Rule for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn signature(&self) -> Signature {
        Signature::of(&[])
    }

    fn infer(&self, _inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let Literal { ty, bytes } = &self.value;
        if ty.bytes() == bytes.len() as u64 {
            return Ok(ty.clone());
        }
        Err(Problem::new(
            format!("{ty} takes {} bytes, it holds {}", ty.bytes(), bytes.len()),
            "store the elements row-major in little-endian order",
        ))
    }

    fn flops(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }
}
