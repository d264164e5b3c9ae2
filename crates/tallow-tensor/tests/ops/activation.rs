//! Activations, also at their corners.

use crate::golden::{Case, case, check_all, kinked};
use tallow_tensor::ops;

pub(crate) const CASES: &[Case] = &[
    case("relu", |x| ops::relu(&x[0])),
    case("relu6", |x| ops::relu6(&x[0])),
    case("gelu", |x| ops::gelu(&x[0])),
    case("gelu_tanh", |x| ops::gelu_tanh(&x[0])),
    case("silu", |x| ops::silu(&x[0])),
    case("sigmoid", |x| ops::sigmoid(&x[0])),
    case("tanh", |x| ops::tanh(&x[0])),
    case("hardswish", |x| ops::hardswish(&x[0])),
    kinked("relu_corners", |x| ops::relu(&x[0])),
    kinked("relu6_corners", |x| ops::relu6(&x[0])),
    kinked("gelu_corners", |x| ops::gelu(&x[0])),
    kinked("gelu_tanh_corners", |x| ops::gelu_tanh(&x[0])),
    kinked("silu_corners", |x| ops::silu(&x[0])),
    kinked("sigmoid_corners", |x| ops::sigmoid(&x[0])),
    kinked("tanh_corners", |x| ops::tanh(&x[0])),
    kinked("hardswish_corners", |x| ops::hardswish(&x[0])),
];

#[test]
fn activations_match_pytorch_and_central_differences() {
    check_all(CASES);
}
