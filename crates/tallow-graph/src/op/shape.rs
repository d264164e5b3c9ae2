//! Operations that move elements without changing them. None of them costs a floating-point operation.

use serde::{Deserialize, Serialize};

use super::check;
use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// Joins one or more values along `dim`; their other sizes are equal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concat {
    /// The dimension that grows.
    pub dim: usize,
}

/// The same elements, row-major, in another shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reshape {
    /// The new shape; has as many elements as the old one.
    pub shape: Vec<usize>,
}

/// Dimensions in another order: output dimension `i` is input dimension `dims[i]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permute {
    /// Every input dimension once.
    pub dims: Vec<usize>,
}

/// Elements `start, start + step, ...` below `end` of dimension `dim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// The dimension that is cut.
    pub dim: usize,
    /// The first index.
    pub start: usize,
    /// One past the last index, at most the size.
    pub end: usize,
    /// Distance between indices, at least 1.
    pub step: usize,
}

/// Repeats dimensions of size 1, and adds leading ones, to reach `shape`; PyTorch's `expand`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expand {
    /// The shape to reach.
    pub shape: Vec<usize>,
}

impl Rule for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn signature(&self) -> Signature {
        Signature::variadic(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let first = &inputs[0];
        check::dim("x", first, self.dim)?;
        let mut shape = first.shape.clone();
        for (i, ty) in inputs.iter().enumerate().skip(1) {
            let fits = ty.rank() == first.rank()
                && ty.dtype == first.dtype
                && (0..ty.rank()).all(|d| d == self.dim || ty.shape[d] == first.shape[d]);
            if !fits {
                return Err(Problem::new(
                    format!("input {i} ({ty}) does not fit input 0 ({first})"),
                    format!(
                        "all sizes but that of dimension {} must be equal, and the element types",
                        self.dim
                    ),
                ));
            }
            shape[self.dim] = shape[self.dim].saturating_add(ty.shape[self.dim]);
        }
        Ok(TensorType::new(first.dtype, shape))
    }

    fn flops(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("dim", self.dim);
    }
}

impl Rule for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let (have, want) = (inputs[0].elements(), check::count(&self.shape));
        if have != want {
            return Err(Problem::new(
                format!("x has {have} elements, {:?} takes {want}", self.shape),
                "give a shape with as many elements",
            ));
        }
        Ok(TensorType::new(inputs[0].dtype, self.shape.clone()))
    }

    fn flops(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("shape", &self.shape);
    }
}

impl Rule for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let x = &inputs[0];
        let mut sorted = self.dims.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..x.rank()) {
            return Err(Problem::new(
                format!("{:?} is not an order of {} dimensions", self.dims, x.rank()),
                "name every dimension of x once",
            ));
        }
        let shape: Vec<usize> = self.dims.iter().map(|&d| x.shape[d]).collect();
        Ok(TensorType::new(x.dtype, shape))
    }

    fn flops(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("dims", &self.dims);
    }
}

impl Rule for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let x = &inputs[0];
        check::dim("x", x, self.dim)?;
        check::positive("step", &[self.step])?;
        let size = x.shape[self.dim];
        if self.start > self.end || self.end > size {
            return Err(Problem::new(
                format!(
                    "{}..{} is not a range of dimension {}, which has size {size}",
                    self.start, self.end, self.dim
                ),
                format!("give start <= end <= {size}"),
            ));
        }
        let mut shape = x.shape.clone();
        shape[self.dim] = (self.end - self.start).div_ceil(self.step);
        Ok(TensorType::new(x.dtype, shape))
    }

    fn flops(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("dim", self.dim);
        list.show("start", self.start);
        list.show("end", self.end);
        list.show_unless("step", self.step, 1);
    }
}

impl Rule for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let x = &inputs[0];
        let reached = check::broadcast(&x.shape, &self.shape);
        if x.rank() > self.shape.len() || reached.as_ref() != Some(&self.shape) {
            return Err(Problem::new(
                format!("x can't be expanded to {:?}", self.shape),
                "only sizes of 1 and missing leading dimensions can grow",
            ));
        }
        Ok(TensorType::new(x.dtype, self.shape.clone()))
    }

    fn flops(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("shape", &self.shape);
    }
}
