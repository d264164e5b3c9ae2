//! Running without a tape, and what still keeps one.

use candle_core::{Device, Var};
use tallow_tensor::{no_grad, ops};

fn weight() -> Var {
    Var::new(&[1f32, -2.0], &Device::Cpu).unwrap()
}

#[test]
fn a_chain_of_operations_keeps_no_tape() {
    let weight = weight();
    let _guard = no_grad::enter();
    let doubled = ops::mul_scalar(&weight, 2.0).unwrap();
    let result = ops::relu(&doubled).unwrap();
    assert_eq!(result.to_vec1::<f32>().unwrap(), [2.0, 0.0]);
    assert!(!doubled.track_op() && !result.track_op());
}

#[test]
fn the_tape_is_kept_again_when_the_outermost_guard_is_dropped() {
    let weight = weight();
    let outer = no_grad::enter();
    drop(no_grad::enter());
    assert!(no_grad::is_active());
    assert!(!ops::relu(&weight).unwrap().track_op());
    drop(outer);
    let loss = ops::sum(&ops::relu(&weight).unwrap(), &[0], false).unwrap();
    let gradients = loss.backward().unwrap();
    assert_eq!(
        gradients.get(&weight).unwrap().to_vec1::<f32>().unwrap(),
        [1.0, 0.0]
    );
}

#[test]
fn other_threads_are_not_affected() {
    let _guard = no_grad::enter();
    let elsewhere = std::thread::spawn(no_grad::is_active).join().unwrap();
    assert!(!elsewhere);
}
