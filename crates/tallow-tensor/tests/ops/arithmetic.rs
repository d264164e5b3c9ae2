//! Arithmetic, with and without broadcasting.

use crate::golden::{Case, case, check_all, flat};
use candle_core::{DType, Device, Result, Tensor, Var};
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

#[test]
fn integers_are_added_as_integers() -> Result<()> {
    let big = Tensor::new(&[16_777_217u32, 3], &Device::Cpu)?;
    let sum = ops::add(&big, &big)?;
    assert_eq!(sum.to_vec1::<u32>()?, [33_554_434, 6]);
    assert_eq!(ops::add_scalar(&big, 1.)?.dtype(), DType::U32);
    Ok(())
}

#[test]
fn shapes_of_eight_dimensions_broadcast() -> Result<()> {
    let a = Var::ones(&[1, 2, 1, 2, 1, 2, 1, 2], DType::F32, &Device::Cpu)?;
    let b = Var::ones(&[3, 1, 1, 1, 1, 1, 1, 2], DType::F32, &Device::Cpu)?;
    let ys = ops::mul(&a, &b)?;
    assert_eq!(ys.dims(), [3, 2, 1, 2, 1, 2, 1, 2]);
    let grads = ys.sum_all()?.backward()?;
    assert_eq!(grads.get(&a).map(flat), Some(vec![3.; 16]));
    assert_eq!(grads.get(&b).map(flat), Some(vec![8.; 6]));
    Ok(())
}

#[test]
fn a_value_may_meet_itself() -> Result<()> {
    let xs = Var::new(&[3f32, -2.], &Device::Cpu)?;
    let grads = ops::mul(&xs, &xs)?.sum_all()?.backward()?;
    assert_eq!(grads.get(&xs).map(flat), Some(vec![6., -4.]));
    Ok(())
}
