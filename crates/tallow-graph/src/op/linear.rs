//! Products with matrices and tables: linear, matmul, embedding.

use super::check;
use super::rule::{Problem, Rule, Signature};
use crate::TensorType;

pub(super) struct Linear;
pub(super) struct MatMul;
pub(super) struct Embedding;

fn matrix(role: &str, ty: &TensorType, form: &str) -> Result<[usize; 2], Problem> {
    <[usize; 2]>::try_from(ty.shape.as_slice()).map_err(|_| {
        Problem::new(
            format!("{role} has {} dimensions, not 2", ty.rank()),
            format!("give {role} as {form}"),
        )
    })
}

impl Rule for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn signature(&self) -> Signature {
        Signature::with_optional(&["x", "weight"], &["bias"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::same_float(&["x", "weight", "bias"], inputs)?;
        let [out, features] = matrix("weight", &inputs[1], "[O, I]")?;
        let Some((&last, leading)) = inputs[0].shape.split_last() else {
            return Err(Problem::new(
                "x is a scalar",
                format!("give x as [..., {features}]"),
            ));
        };
        if last != features {
            let flat: u64 = check::count(inputs[0].shape.get(1..).unwrap_or(&[]));
            let flatten = if flat == features as u64 && inputs[0].rank() > 2 {
                "; flatten x from dimension 1 first"
            } else {
                ""
            };
            return Err(Problem::new(
                format!("x has {last} features, weight is made for {features}"),
                format!(
                    "make the last dimension of x {features} or give a weight [{out}, {last}]{flatten}"
                ),
            ));
        }
        if let Some(bias) = inputs.get(2) {
            check::vector("bias", bias, out)?;
        }
        let mut shape = leading.to_vec();
        shape.push(out);
        Ok(TensorType::new(inputs[0].dtype, shape))
    }

    fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        let bias = if inputs.len() > 2 {
            output.elements()
        } else {
            0
        };
        self.macs(inputs, output)
            .saturating_mul(2)
            .saturating_add(bias)
    }

    fn macs(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        let features = inputs.get(1).and_then(|w| w.shape.get(1)).copied();
        output
            .elements()
            .saturating_mul(features.unwrap_or(0) as u64)
    }
}

impl Rule for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["a", "b"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::same_float(&["a", "b"], inputs)?;
        let ([a_batch @ .., m, k], [b_batch @ .., k2, n]) =
            (inputs[0].shape.as_slice(), inputs[1].shape.as_slice())
        else {
            return Err(Problem::new(
                "both operands need two dimensions or more",
                "reshape a vector to [1, K] or [K, 1]",
            ));
        };
        if k != k2 {
            return Err(Problem::new(
                format!("a has {k} columns, b has {k2} rows"),
                "make them equal; transpose one of them if its dimensions are swapped",
            ));
        }
        let Some(mut shape) = check::broadcast(a_batch, b_batch) else {
            return Err(Problem::new(
                format!("batch dimensions {a_batch:?} and {b_batch:?} don't broadcast"),
                "make them equal, or 1",
            ));
        };
        shape.extend([*m, *n]);
        Ok(TensorType::new(inputs[0].dtype, shape))
    }

    fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        self.macs(inputs, output).saturating_mul(2)
    }

    fn macs(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        let depth = inputs.first().and_then(|a| a.shape.last()).copied();
        output.elements().saturating_mul(depth.unwrap_or(0) as u64)
    }
}

impl Rule for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["ids", "weight"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let (ids, weight) = (&inputs[0], &inputs[1]);
        if ids.dtype.is_float() {
            return Err(Problem::new(
                format!("ids holds {}, not integers", ids.dtype),
                "convert ids to u32",
            ));
        }
        check::float("weight", weight)?;
        let [_, width] = matrix("weight", weight, "[V, D]")?;
        let mut shape = ids.shape.clone();
        shape.push(width);
        Ok(TensorType::new(weight.dtype, shape))
    }

    fn flops(&self, _inputs: &[TensorType], _output: &TensorType) -> u64 {
        0
    }
}
