//! Matrix products, attention, embedding.

use crate::golden::{Case, case, check_all};
use tallow_tensor::ops;

pub(crate) const CASES: &[Case] = &[
    case("linear", |x| ops::linear(&x[0], &x[1], Some(&x[2]))),
    case("linear_no_bias", |x| ops::linear(&x[0], &x[1], None)),
    case("linear_tokens", |x| ops::linear(&x[0], &x[1], Some(&x[2]))),
    case("linear_vector", |x| ops::linear(&x[0], &x[1], Some(&x[2]))),
    case("matmul", |x| ops::matmul(&x[0], &x[1])),
    case("matmul_batched", |x| ops::matmul(&x[0], &x[1])),
    case("matmul_broadcast", |x| ops::matmul(&x[0], &x[1])),
    case("matmul_shared_right", |x| ops::matmul(&x[0], &x[1])),
    case("attention", |x| ops::attention(&x[0], &x[1], &x[2], 0.5)),
    case("embedding", |x| ops::embedding(&x[0], &x[1])),
];

#[test]
fn products_match_pytorch_and_central_differences() {
    check_all(CASES);
}
