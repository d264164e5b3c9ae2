//! Scaled dot-product attention.

use super::dispatch::run;
use super::{kernel, portable};
use candle_core::{Result, Tensor};
use tallow_graph::{Op, op::Attention};

/// `softmax(scale q k^T) v`: `q` `[N, H, L, D]`, `k` `[N, H, S, D]`, `v` `[N, H, S, E]`, giving `[N, H, L, E]`
/// (Vaswani et al., 2017); PyTorch's `scaled_dot_product_attention` without mask. `scale` is usually `1 / sqrt(D)`.
///
/// # Errors
/// Where the sizes don't fit.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, scale: f64) -> Result<Tensor> {
    let op = Op::Attention(Attention { scale });
    run(
        op,
        [q, k, v],
        |[q, k, v], out| kernel::attention(q, k, v, scale, out),
        || portable::product::attention(q, k, v, scale),
    )
}
