//! Arithmetic, with and without broadcasting.

use crate::golden::{Case, case, check_all};
use tallow_tensor::ops;

pub(crate) const CASES: &[Case] = &[
    case("add", |x| ops::add(&x[0], &x[1])),
    case("add_broadcast_right", |x| ops::add(&x[0], &x[1])),
    case("add_broadcast_left", |x| ops::add(&x[0], &x[1])),
    case("add_channels", |x| ops::add(&x[0], &x[1])),
    case("sub", |x| ops::sub(&x[0], &x[1])),
    case("sub_broadcast_right", |x| ops::sub(&x[0], &x[1])),
    case("sub_broadcast_left", |x| ops::sub(&x[0], &x[1])),
    case("sub_channels", |x| ops::sub(&x[0], &x[1])),
    case("mul", |x| ops::mul(&x[0], &x[1])),
    case("mul_broadcast_right", |x| ops::mul(&x[0], &x[1])),
    case("mul_broadcast_left", |x| ops::mul(&x[0], &x[1])),
    case("mul_channels", |x| ops::mul(&x[0], &x[1])),
    case("div", |x| ops::div(&x[0], &x[1])),
    case("div_broadcast_right", |x| ops::div(&x[0], &x[1])),
    case("div_broadcast_left", |x| ops::div(&x[0], &x[1])),
    case("div_channels", |x| ops::div(&x[0], &x[1])),
    case("add_scalar", |x| ops::add_scalar(&x[0], 2.5)),
    case("mul_scalar", |x| ops::mul_scalar(&x[0], -1.5)),
    case("mul_scalar_zero", |x| ops::mul_scalar(&x[0], 0.)),
];

#[test]
fn arithmetic_matches_pytorch_and_central_differences() {
    check_all(CASES);
}
