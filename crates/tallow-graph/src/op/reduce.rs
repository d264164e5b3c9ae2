//! Reductions over dimensions.

use serde::{Deserialize, Serialize};

use super::check;
use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// Mean over `dims`, PyTorch's `mean`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mean {
    /// The dimensions to reduce, at least one, each once.
    pub dims: Vec<usize>,
    /// Whether they stay as size 1.
    pub keep_dim: bool,
}

/// Sum over `dims`, PyTorch's `sum`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// The dimensions to reduce, at least one, each once.
    pub dims: Vec<usize>,
    /// Whether they stay as size 1.
    pub keep_dim: bool,
}

fn infer(x: &TensorType, dims: &[usize], keep_dim: bool) -> Result<TensorType, Problem> {
    check::float("x", x)?;
    if dims.is_empty() {
        return Err(Problem::new(
            "no dimension is named",
            "name the dimensions to reduce; all of them for a scalar",
        ));
    }
    for (i, &dim) in dims.iter().enumerate() {
        check::dim("x", x, dim)?;
        if dims[..i].contains(&dim) {
            return Err(Problem::new(
                format!("dimension {dim} is named twice"),
                "name each dimension once",
            ));
        }
    }
    let shape = x.shape.iter().enumerate();
    let shape: Vec<usize> = shape
        .filter_map(|(i, &size)| match (dims.contains(&i), keep_dim) {
            (false, _) => Some(size),
            (true, true) => Some(1),
            (true, false) => None,
        })
        .collect();
    Ok(TensorType::new(x.dtype, shape))
}

fn attributes(list: &mut Attributes, dims: &[usize], keep_dim: bool) {
    list.show("dims", dims);
    list.show_unless("keep_dim", keep_dim, false);
}

impl Rule for Mean {
    fn name(&self) -> &'static str {
        "mean"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        infer(&inputs[0], &self.dims, self.keep_dim)
    }

    fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        check::first_elements(inputs).saturating_add(output.elements())
    }

    fn attributes(&self, list: &mut Attributes) {
        attributes(list, &self.dims, self.keep_dim);
    }
}

impl Rule for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        infer(&inputs[0], &self.dims, self.keep_dim)
    }

    fn flops(&self, inputs: &[TensorType], _output: &TensorType) -> u64 {
        check::first_elements(inputs)
    }

    fn attributes(&self, list: &mut Attributes) {
        attributes(list, &self.dims, self.keep_dim);
    }
}
