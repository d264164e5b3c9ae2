//! Optimizers against PyTorch's trajectories, their state, and what they refuse.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor, Var};
use tallow_train::{AdamW, Optimizer, OptimizerState, Sgd};

#[derive(serde::Deserialize)]
struct Golden {
    start: Vec<f64>,
    gradients: Vec<Vec<f64>>,
    parameters: BTreeMap<String, Vec<Vec<f64>>>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../golden/optimizers.json")).unwrap()
}

fn optimizers() -> Vec<(&'static str, Box<dyn Optimizer>)> {
    vec![
        ("adamw", Box::new(AdamW::new(0.05))),
        (
            "adamw_settings",
            Box::new(
                AdamW::new(0.02)
                    .betas(0.8, 0.95)
                    .eps(1e-6)
                    .weight_decay(0.1),
            ),
        ),
        ("sgd", Box::new(Sgd::new(0.1))),
        (
            "sgd_weight_decay",
            Box::new(Sgd::new(0.1).weight_decay(0.05)),
        ),
        ("sgd_momentum", Box::new(Sgd::new(0.1).momentum(0.9))),
        (
            "sgd_dampening",
            Box::new(
                Sgd::new(0.1)
                    .momentum(0.9)
                    .dampening(0.3)
                    .weight_decay(0.01),
            ),
        ),
        (
            "sgd_nesterov",
            Box::new(
                Sgd::new(0.05)
                    .momentum(0.8)
                    .nesterov(true)
                    .weight_decay(0.01),
            ),
        ),
    ]
}

fn tensor(values: &[f64], dtype: DType) -> Tensor {
    Tensor::new(values, &Device::Cpu)
        .unwrap()
        .to_dtype(dtype)
        .unwrap()
}

fn values(var: &Var) -> Vec<f64> {
    var.to_dtype(DType::F64).unwrap().to_vec1().unwrap()
}

fn bits(var: &Var) -> Vec<u32> {
    let values = var.to_vec1::<f32>().unwrap();
    values.iter().map(|value| value.to_bits()).collect()
}

/// Runs a stored list of gradients; the parameter after each.
fn trajectory(optimizer: &mut dyn Optimizer, golden: &Golden, dtype: DType) -> Vec<Vec<f64>> {
    let parameter = Var::from_tensor(&tensor(&golden.start, dtype)).unwrap();
    let gradients = golden.gradients.iter();
    gradients
        .map(|gradient| {
            optimizer
                .update("w", &parameter, &tensor(gradient, dtype))
                .unwrap();
            values(&parameter)
        })
        .collect()
}

#[test]
fn updates_follow_pytorchs_trajectories() {
    let golden = golden();
    assert_eq!(
        optimizers().len(),
        golden.parameters.len(),
        "every stored one is compared"
    );
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 2e-6)] {
        for (name, mut optimizer) in optimizers() {
            let ours = trajectory(optimizer.as_mut(), &golden, dtype);
            for (step, (ours, theirs)) in ours.iter().zip(&golden.parameters[name]).enumerate() {
                for (a, b) in ours.iter().zip(theirs) {
                    let close = (a - b).abs() <= tolerance * b.abs().max(1.0);
                    assert!(close, "{name} {dtype:?}, step {step}: {a}, PyTorch {b}");
                }
            }
        }
    }
}

#[test]
fn a_restored_state_goes_on_with_the_same_bits() {
    let golden = golden();
    let gradients: Vec<Tensor> = golden
        .gradients
        .iter()
        .map(|g| tensor(g, DType::F32))
        .collect();
    let (before, after) = gradients.split_at(5);
    for ((name, mut first), (_, mut second)) in optimizers().into_iter().zip(optimizers()) {
        let w = Var::from_tensor(&tensor(&golden.start, DType::F32)).unwrap();
        for gradient in before {
            first.update("w", &w, gradient).unwrap();
        }
        let copy = Var::from_tensor(&w.as_detached_tensor().copy().unwrap()).unwrap();
        second.load_state(&first.state()).unwrap();
        for gradient in after {
            first.update("w", &w, gradient).unwrap();
            second.update("w", &copy, gradient).unwrap();
            assert_eq!(bits(&w), bits(&copy), "{name}");
        }
    }
}

#[test]
fn a_deep_copy_of_a_state_does_not_change_with_later_updates() {
    let w = Var::new(&[1f32, 2.0], &Device::Cpu).unwrap();
    let gradient = Tensor::new(&[0.5f32, -0.5], &Device::Cpu).unwrap();
    let mut adam = AdamW::new(0.1);
    adam.update("w", &w, &gradient).unwrap();
    let moment = |state: &OptimizerState| {
        let tensor = &state.parameters["w"].tensors["exp_avg"];
        tensor.to_vec1::<f32>().unwrap()
    };
    let live = adam.state();
    let copy = live.deep_copy().unwrap();
    let before = moment(&copy);
    assert_eq!(moment(&live), before);
    adam.update("w", &w, &gradient).unwrap();
    assert_eq!(moment(&copy), before);
    assert_ne!(moment(&live), before);
}

#[test]
fn a_state_names_its_settings_and_counts_updates_by_parameter() {
    let mut sgd = Sgd::new(0.1).momentum(0.9).nesterov(true);
    let gradient = Tensor::new(&[1f32], &Device::Cpu).unwrap();
    let [a, b] = [0, 1].map(|_| Var::new(&[1f32], &Device::Cpu).unwrap());
    sgd.update("a", &a, &gradient).unwrap();
    sgd.update("a", &a, &gradient).unwrap();
    sgd.update("b", &b, &gradient).unwrap();
    let state = sgd.state();
    assert_eq!(state.algorithm, "sgd");
    assert_eq!(
        (state.settings["lr"], state.settings["nesterov"]),
        (0.1, 1.0)
    );
    let steps: Vec<_> = state
        .parameters
        .iter()
        .map(|(name, p)| (name.as_str(), p.step))
        .collect();
    assert_eq!(steps, [("a", 2), ("b", 1)]);
}

#[test]
fn a_state_that_does_not_fit_is_refused_and_changes_nothing() {
    let w = Var::new(&[1f32], &Device::Cpu).unwrap();
    let gradient = Tensor::new(&[1f32], &Device::Cpu).unwrap();
    let mut adam = AdamW::new(0.1);
    adam.update("w", &w, &gradient).unwrap();

    let mut without_moment = adam.state();
    without_moment
        .parameters
        .get_mut("w")
        .unwrap()
        .tensors
        .remove("exp_avg_sq");
    let mut without_setting = adam.state();
    without_setting.settings.remove("beta1");
    let cases = [
        (Sgd::new(0.5).state(), "optimizer `sgd`"),
        (without_moment, "`exp_avg_sq` of parameter `w`"),
        (without_setting, "setting `beta1`"),
    ];
    for (state, part) in cases {
        let message = adam.load_state(&state).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        assert_eq!(adam.lr(), 0.1);
        assert_eq!(adam.state().parameters["w"].step, 1);
    }
}

#[test]
fn a_step_updates_what_has_a_gradient_and_takes_the_gradients() {
    let used = Var::new(&[2f32], &Device::Cpu).unwrap();
    let unused = Var::new(&[2f32], &Device::Cpu).unwrap();
    let mut gradients = used.sqr().unwrap().sum_all().unwrap().backward().unwrap();
    let parameters = [
        ("used".to_string(), used.clone()),
        ("unused".to_string(), unused.clone()),
    ];
    let updated = Sgd::new(0.25).step(&parameters, &mut gradients).unwrap();
    assert_eq!(updated, 1);
    assert!(gradients.get(&used).is_none(), "its memory is free");
    assert_eq!((values(&used), values(&unused)), (vec![1.0], vec![2.0]));
}

#[test]
fn settings_without_sense_are_refused_by_name() {
    let cases: Vec<(Box<dyn Optimizer>, &str)> = vec![
        (Box::new(AdamW::new(-0.1)), "learning rate"),
        (Box::new(AdamW::new(f64::INFINITY)), "learning rate"),
        (Box::new(AdamW::new(0.1).betas(0.9, 1.0)), "decay rate"),
        (Box::new(AdamW::new(0.1).eps(-1.0)), "epsilon"),
        (
            Box::new(AdamW::new(0.1).weight_decay(f64::NAN)),
            "weight decay",
        ),
        (Box::new(Sgd::new(f64::NAN)), "learning rate"),
        (Box::new(Sgd::new(0.1).momentum(-0.5)), "momentum"),
        (Box::new(Sgd::new(0.1).nesterov(true)), "Nesterov"),
        (
            Box::new(Sgd::new(0.1).momentum(0.9).dampening(0.1).nesterov(true)),
            "dampening 0.1",
        ),
    ];
    for (optimizer, part) in cases {
        let message = optimizer.check().unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    for (name, optimizer) in optimizers() {
        assert!(optimizer.check().is_ok(), "{name}");
    }
}

#[test]
fn a_gradient_of_another_shape_is_an_error_and_changes_nothing() {
    let w = Var::new(&[1f32, 2.0], &Device::Cpu).unwrap();
    let gradient = Tensor::new(&[1f32], &Device::Cpu).unwrap();
    for (name, mut optimizer) in optimizers() {
        let message = optimizer
            .update("w", &w, &gradient)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("[1]") && message.contains("[2]"),
            "{name}: {message}"
        );
        assert_eq!(values(&w), [1.0, 2.0], "{name}");
    }
}
