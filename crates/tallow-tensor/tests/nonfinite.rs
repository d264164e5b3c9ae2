//! Where a NaN or an infinity first came from.

use candle_core::{DType, Device, Tensor};
use tallow_tensor::{nonfinite, ops, scope};

fn tensor(values: &[f32]) -> Tensor {
    Tensor::new(values, &Device::Cpu).unwrap()
}

#[test]
fn the_first_of_several_bad_results_is_named_with_its_module() {
    let (_, origin) = nonfinite::first_in(|| {
        let _first = scope::enter("stem");
        let good = ops::relu(&tensor(&[1.0, 2.0])).unwrap();
        let _second = scope::enter("head.fc");
        let bad = ops::div(&good, &tensor(&[0.0, 1.0])).unwrap();
        let _third = scope::enter("later");
        ops::add(&bad, &bad).unwrap()
    });
    let origin = origin.unwrap();
    assert_eq!(origin.module, "head.fc");
    assert_eq!((origin.operation, origin.count), ("div", 1));
}

#[test]
fn finite_results_have_no_origin_and_a_former_one_is_forgotten() {
    let zero_by_zero = || ops::div(&tensor(&[0.0]), &tensor(&[0.0])).unwrap();
    assert!(nonfinite::first_in(zero_by_zero).1.is_some());
    let one = || ops::div(&tensor(&[2.0]), &tensor(&[2.0])).unwrap();
    assert_eq!(nonfinite::first_in(one).1, None);
}

#[test]
fn nothing_is_watched_outside() {
    let bad = ops::div(&tensor(&[1.0]), &tensor(&[0.0])).unwrap();
    assert_eq!(nonfinite::first_in(|| bad.clone()).1, None, "made before");
}

#[test]
fn every_float_type_is_counted_and_integers_are_finite() {
    let values = tensor(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0]);
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let values = values.to_dtype(dtype).unwrap();
        assert_eq!(nonfinite::count(&values).unwrap(), 3, "{dtype:?}");
    }
    let largest = Tensor::new(&[f64::MAX], &Device::Cpu).unwrap();
    assert_eq!(nonfinite::count(&largest).unwrap(), 0);
    let integers = Tensor::new(&[1u32, u32::MAX], &Device::Cpu).unwrap();
    assert_eq!(nonfinite::count(&integers).unwrap(), 0);
}
