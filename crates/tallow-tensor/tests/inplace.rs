//! Changing parameters in place.

use candle_core::{DType, Device, Result, Tensor, Var, bail};
use tallow_tensor::inplace;

fn var(values: &[f32]) -> Var {
    Var::from_slice(values, values.len(), &Device::Cpu).expect("a plain tensor")
}

fn subtract(values: &mut [f32], grads: &[f32]) -> Result<()> {
    values.iter_mut().zip(grads).for_each(|(v, g)| *v -= g);
    Ok(())
}

#[test]
fn every_holder_of_the_variable_sees_the_change() -> Result<()> {
    let weight = var(&[1., 2., 3.]);
    let (clone, view) = (weight.clone(), weight.narrow(0, 1, 2)?);
    inplace::zip2(&weight, &var(&[1., 1., 1.]), subtract)?;
    assert_eq!(clone.to_vec1::<f32>()?, [0., 1., 2.]);
    assert_eq!(view.to_vec1::<f32>()?, [1., 2.]);
    Ok(())
}

#[test]
fn a_gradient_in_another_memory_order_is_read_by_its_indices() -> Result<()> {
    let weight = Var::zeros((2, 3), DType::F32, &Device::Cpu)?;
    let grad = Tensor::new(&[[1f32, 4.], [2., 5.], [3., 6.]], &Device::Cpu)?.t()?;
    inplace::zip2(&weight, &grad, subtract)?;
    assert_eq!(weight.to_vec2::<f32>()?, [[-1., -2., -3.], [-4., -5., -6.]]);
    Ok(())
}

#[test]
fn a_part_of_a_tensor_can_be_changed_where_it_is_contiguous() -> Result<()> {
    let table = Var::zeros((3, 2), DType::F32, &Device::Cpu)?;
    inplace::update(&table.narrow(0, 1, 1)?, |row| {
        row.fill(7.);
        Ok(())
    })?;
    assert_eq!(table.to_vec2::<f32>()?, [[0., 0.], [7., 7.], [0., 0.]]);
    Ok(())
}

#[test]
fn what_cannot_be_changed_in_place_is_refused_and_left_alone() -> Result<()> {
    let device = Device::Cpu;
    let fill = |values: &mut [f32]| {
        values.fill(9.);
        Ok(())
    };
    let wide = Var::zeros(2, DType::F64, &device)?;
    let square = Var::zeros((2, 2), DType::F32, &device)?;
    for refused in [wide.as_tensor().clone(), square.t()?] {
        assert!(!inplace::is_supported(&refused));
        let error = inplace::update(&refused, fill)
            .expect_err("refused")
            .to_string();
        assert!(error.contains("contiguous f32"), "{error}");
    }
    assert_eq!(square.to_vec2::<f32>()?, [[0.; 2]; 2]);
    Ok(())
}

#[test]
fn a_gradient_of_another_shape_or_of_the_same_memory_is_refused() {
    let weight = var(&[1., 2.]);
    let error = inplace::zip2(&weight, &var(&[1., 2., 3.]), subtract).expect_err("another shape");
    let error = error.to_string();
    assert!(error.contains("[2]") && error.contains("[3]"), "{error}");
    assert!(inplace::zip2(&weight, &weight, subtract).is_err());
    assert_eq!(weight.to_vec1::<f32>().expect("a vector"), [1., 2.]);
}

#[test]
fn the_closures_error_is_passed_on() {
    let weight = var(&[1.]);
    let error = inplace::update(&weight, |_| bail!("no step today")).expect_err("passed on");
    assert!(error.to_string().contains("no step today"));
}
