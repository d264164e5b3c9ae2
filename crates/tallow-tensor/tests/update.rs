//! Optimizer updates: one pass and candle's arithmetic agree, and what is refused changes nothing. That both follow
//! PyTorch is tested where the optimizers are.

use candle_core::{DType, Device, Result, Tensor, Var};
use tallow_tensor::update::{AdamWUpdate, SgdUpdate, adamw, sgd};

const ADAM: AdamWUpdate = AdamWUpdate {
    lr: 0.05,
    beta1: 0.8,
    beta2: 0.9,
    eps: 1e-6,
    weight_decay: 0.1,
    step: 3,
};
const SGD: SgdUpdate = SgdUpdate {
    lr: 0.05,
    momentum: 0.9,
    dampening: 0.0,
    nesterov: true,
    weight_decay: 0.1,
    first: false,
};

/// 1,001 positive values that follow from `offset`, so that no width of a vector divides them.
fn values(offset: f64, dtype: DType) -> Tensor {
    let values: Vec<f64> = (0..1001)
        .map(|i| 1.1 + (f64::from(i) + offset).sin())
        .collect();
    Tensor::from_vec(values, (7, 11, 13), &Device::Cpu)
        .and_then(|t| t.to_dtype(dtype))
        .unwrap()
}

fn var(offset: f64, dtype: DType) -> Var {
    Var::from_tensor(&values(offset, dtype)).unwrap()
}

fn read(var: &Var) -> Vec<f64> {
    let values = var
        .flatten_all()
        .and_then(|t| t.to_dtype(DType::F64))
        .unwrap();
    values.to_vec1().unwrap()
}

/// Parameter and state after one update in a type.
fn after(dtype: DType, update: impl Fn(&Var, &Tensor, &[Var; 2]) -> Result<()>) -> Vec<f64> {
    let parameter = var(0.0, dtype);
    let state = [var(1.0, dtype), var(2.0, dtype)];
    update(&parameter, &values(3.0, dtype), &state).unwrap();
    [&parameter, &state[0], &state[1]]
        .into_iter()
        .flat_map(read)
        .collect()
}

#[test]
fn both_ways_of_computing_agree() {
    type Update = fn(&Var, &Tensor, &[Var; 2]) -> Result<()>;
    let rows: [(&str, Update); 4] = [
        ("adamw", |p, g, s| adamw(p, g, &s[0], &s[1], &ADAM)),
        ("sgd", |p, g, s| sgd(p, g, Some(&s[0]), &SGD)),
        ("sgd, first", |p, g, s| {
            sgd(p, g, Some(&s[0]), &SgdUpdate { first: true, ..SGD })
        }),
        ("sgd, plain", |p, g, _| {
            sgd(
                p,
                g,
                None,
                &SgdUpdate {
                    momentum: 0.0,
                    nesterov: false,
                    ..SGD
                },
            )
        }),
    ];
    for (name, update) in rows {
        let (fused, portable) = (after(DType::F32, update), after(DType::F64, update));
        for (i, (a, b)) in fused.iter().zip(&portable).enumerate() {
            assert!((a - b).abs() < 1e-5, "{name}, element {i}: {a} and {b}");
        }
    }
}

#[test]
fn a_gradient_with_other_strides_is_read_in_order() {
    let parameter = var(0.0, DType::F32);
    let straight = var(0.0, DType::F32);
    let gradient = values(3.0, DType::F32);
    let turned = gradient
        .transpose(0, 2)
        .and_then(|t| t.contiguous())
        .unwrap();
    let turned = turned.transpose(0, 2).unwrap();
    assert!(!turned.is_contiguous());
    let plain = SgdUpdate {
        momentum: 0.0,
        nesterov: false,
        ..SGD
    };
    sgd(&parameter, &turned, None, &plain).unwrap();
    sgd(&straight, &gradient, None, &plain).unwrap();
    assert_eq!(read(&parameter), read(&straight));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let parameter = var(0.0, DType::F32);
    let before = read(&parameter);
    let state = var(1.0, DType::F32);
    let other = var(2.0, DType::F32);
    let short = Var::zeros(3, DType::F32, &Device::Cpu).unwrap();
    let gradient = values(3.0, DType::F32);
    let cases = [
        (sgd(&parameter, &gradient, None, &SGD), "momentum buffer"),
        (
            sgd(&parameter, &short, Some(&state), &SGD),
            "gradient of [3]",
        ),
        (
            sgd(&parameter, &gradient, Some(&short), &SGD),
            "state of [3]",
        ),
        (
            sgd(&parameter, &parameter, Some(&state), &SGD),
            "shares storage",
        ),
        (
            adamw(
                &parameter,
                &gradient,
                &state,
                &other,
                &AdamWUpdate { step: 0, ..ADAM },
            ),
            "counted from 1",
        ),
        (
            adamw(&parameter, &gradient, &state, &state, &ADAM),
            "two moments",
        ),
    ];
    for (result, part) in cases {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        assert_eq!(read(&parameter), before, "{part}");
    }
}
