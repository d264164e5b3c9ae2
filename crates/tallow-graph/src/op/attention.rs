//! Scaled dot-product attention as one operation, so that readers needn't find it in its parts.

use serde::{Deserialize, Serialize};

use super::check;
use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// `softmax(scale · q · kᵀ) · v`, PyTorch's `scaled_dot_product_attention` without mask: q `[N, H, L, D]`,
/// k `[N, H, S, D]`, v `[N, H, S, E]`, giving `[N, H, L, E]` ("Attention Is All You Need", 2017).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Factor of the scores; `1 / √D` in the paper.
    pub scale: f64,
}

impl Rule for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["q", "k", "v"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        const ROLES: [&str; 3] = ["q", "k", "v"];
        check::same_float(&ROLES, inputs)?;
        let mut dims = [[0; 4]; 3];
        for ((dims, role), ty) in dims.iter_mut().zip(ROLES).zip(inputs) {
            *dims = <[usize; 4]>::try_from(ty.shape.as_slice()).map_err(|_| {
                Problem::new(
                    format!("{role} has {} dimensions, not 4", ty.rank()),
                    format!("give {role} as [batch, heads, length, width]"),
                )
            })?;
        }
        let [[n, h, l, d], [kn, kh, ks, kd], [vn, vh, vs, e]] = dims;
        if (n, h) != (kn, kh) || (n, h) != (vn, vh) {
            return Err(Problem::new(
                "batch and heads of q, k and v differ",
                "give all three the same first two dimensions",
            ));
        }
        if d != kd {
            return Err(Problem::new(
                format!("q is {d} wide, k is {kd}"),
                "give q and k the same last dimension",
            ));
        }
        if ks != vs {
            return Err(Problem::new(
                format!("k has length {ks}, v has {vs}"),
                "give k and v the same third dimension",
            ));
        }
        if ks == 0 {
            return Err(Problem::new(
                "there is nothing to attend to: k and v have length 0",
                "give at least one key",
            ));
        }
        Ok(TensorType::new(inputs[0].dtype, [n, h, l, e]))
    }

    fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        let scores = scores(inputs);
        // Scale, then a softmax of five operations a score.
        self.macs(inputs, output)
            .saturating_mul(2)
            .saturating_add(scores.saturating_mul(6))
    }

    fn macs(&self, inputs: &[TensorType], _output: &TensorType) -> u64 {
        let width = |i: usize| {
            let last = inputs.get(i).and_then(|ty: &TensorType| ty.shape.last());
            last.copied().unwrap_or(0) as u64
        };
        scores(inputs).saturating_mul(width(0).saturating_add(width(2)))
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("scale", self.scale);
    }
}

/// The number of query-key pairs.
fn scores(inputs: &[TensorType]) -> u64 {
    let rows = inputs
        .first()
        .map_or(0, |q| check::count(q.shape.get(..3).unwrap_or(&[])));
    let keys = inputs.get(1).and_then(|k| k.shape.get(2)).copied();
    rows.saturating_mul(keys.unwrap_or(0) as u64)
}
