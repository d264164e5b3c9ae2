//! Moving elements, and reductions.

use crate::golden::{Case, case, check_all};
use tallow_tensor::ops;

pub(crate) const CASES: &[Case] = &[
    case("concat", |x| ops::concat(&[&x[0], &x[1], &x[2]], 1)),
    case("concat_one", |x| ops::concat(&[&x[0]], 1)),
    case("concat_batch", |x| ops::concat(&[&x[0], &x[1]], 0)),
    case("reshape", |x| ops::reshape(&x[0], &[6, 20])),
    case("flatten", |x| ops::flatten(&x[0], 1)),
    case("permute", |x| ops::permute(&x[0], &[2, 0, 3, 1])),
    case("transpose", |x| ops::transpose(&x[0], 1, 3)),
    case("slice", |x| ops::slice(&x[0], 2, 1, 3)),
    case("expand", |x| ops::expand(&x[0], &[4, 3, 5])),
    case("mean", |x| ops::mean(&x[0], &[2, 3], false)),
    case("mean_keep", |x| ops::mean(&x[0], &[1], true)),
    case("mean_all", |x| ops::mean(&x[0], &[0, 1, 2, 3], false)),
    case("mean_last", |x| ops::mean(&x[0], &[3], false)),
    case("mean_split", |x| ops::mean(&x[0], &[0, 2], false)),
    case("sum", |x| ops::sum(&x[0], &[2, 3], false)),
    case("sum_keep", |x| ops::sum(&x[0], &[0, 3], true)),
    case("sum_tokens", |x| ops::sum(&x[0], &[1], false)),
];

#[test]
fn shape_operations_and_reductions_match_pytorch_and_central_differences() {
    check_all(CASES);
}
