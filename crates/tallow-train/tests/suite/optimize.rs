//! Parameter groups, LAMB, Muon, clipping and the later schedules against the numbers of `make_optimize.py`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use candle_core::{DType, Device, Tensor, Var};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tallow_train::{
    AdamW, Error, GradientClip, GroupOptions, Lamb, LrSchedule, Muon, MuonAdjustment, Optimizer,
    ParamGroups, ReduceOnPlateau, Sgd, clip_grad_norm, clip_grad_value,
};

static GOLDEN: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../golden/optimize.json")).unwrap());

fn golden<T: DeserializeOwned>(pointer: &str) -> T {
    let value = GOLDEN.pointer(pointer);
    serde_json::from_value(value.expect(pointer).clone()).unwrap()
}

fn vector(values: &[f64], dtype: DType) -> Tensor {
    let tensor = Tensor::new(values, &Device::Cpu).unwrap();
    tensor.to_dtype(dtype).unwrap()
}

fn matrix(rows: &[Vec<f64>], dtype: DType) -> Tensor {
    let tensor = Tensor::new(rows.to_vec(), &Device::Cpu).unwrap();
    tensor.to_dtype(dtype).unwrap()
}

#[track_caller]
fn assert_close(ours: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    let values = |t: &Tensor| {
        let flat = t.detach().flatten_all().unwrap().to_dtype(DType::F64);
        flat.unwrap().to_vec1::<f64>().unwrap()
    };
    for (a, b) in values(ours).iter().zip(values(expected)) {
        let close = (a - b).abs() <= tolerance * b.abs().max(1.0);
        assert!(close, "{what}: {a}, expected {b}");
    }
}

const PRECISIONS: [(DType, f64); 2] = [(DType::F64, 1e-10), (DType::F32, 5e-6)];

#[test]
fn lamb_follows_the_reference() {
    let start: Vec<f64> = golden("/start");
    let gradients: Vec<Vec<f64>> = golden("/gradients");
    let adapting = || Lamb::new(0.1).betas(0.8, 0.95).weight_decay(0.05);
    let plain = || Lamb::new(0.1).weight_decay(0.0);
    for (dtype, tolerance) in PRECISIONS {
        for (name, mut lamb) in [("lamb", adapting()), ("lamb_plain", plain())] {
            let expected: Vec<Vec<f64>> = golden(&format!("/{name}"));
            let w = Var::from_tensor(&vector(&start, dtype)).unwrap();
            for (gradient, expected) in gradients.iter().zip(expected) {
                lamb.update("w", &w, &vector(gradient, dtype)).unwrap();
                assert_close(&w, &vector(&expected, dtype), tolerance, name);
            }
        }
    }
}

fn muons() -> [(&'static str, Muon); 3] {
    let muon = || Muon::new(0.1).weight_decay(0.05);
    [
        ("muon", muon()),
        ("muon_plain", muon().nesterov(false).momentum(0.8)),
        ("muon_rms", muon().adjustment(MuonAdjustment::MatchRmsAdamW)),
    ]
}

fn muon_follows(shape: &str, name: &str, mut muon: Muon, dtype: DType, tolerance: f64) {
    let at = |what: &str| format!("/matrices/{shape}/{what}");
    let start: Vec<Vec<f64>> = golden(&at("start"));
    let gradients: Vec<Vec<Vec<f64>>> = golden(&at("gradients"));
    let expected: Vec<Vec<Vec<f64>>> = golden(&at(name));
    let w = Var::from_tensor(&matrix(&start, dtype)).unwrap();
    for (gradient, expected) in gradients.iter().zip(expected) {
        muon.update("w", &w, &matrix(gradient, dtype)).unwrap();
        let what = format!("{name} {shape} {dtype:?}");
        assert_close(&w, &matrix(&expected, dtype), tolerance, &what);
    }
}

#[test]
fn muon_follows_pytorch() {
    for shape in ["wide", "tall"] {
        for (dtype, tolerance) in PRECISIONS {
            for (name, muon) in muons() {
                muon_follows(shape, name, muon, dtype, tolerance);
            }
        }
        let muon = Muon::new(0.1).weight_decay(0.05);
        muon_follows(shape, "muon_bfloat16", muon, DType::F32, 2e-2);
    }
}

#[test]
fn muon_takes_convolutions_as_matrices_and_leaves_the_rest_to_adamw() {
    let filled = |shape: &[usize]| {
        let count: usize = shape.iter().product();
        let values: Vec<f32> = (0..count)
            .map(|i| ((i * 7 + 3) % 11) as f32 - 5.0)
            .collect();
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    };
    let var = |shape: &[usize]| Var::from_tensor(&filled(shape)).unwrap();
    let new = || {
        Muon::new(0.1)
            .rest(AdamW::new(0.01))
            .leave(|name, _| name == "head")
    };
    let (conv, flat) = (var(&[4, 2, 3, 3]), var(&[4, 18]));
    new().update("w", &conv, &filled(&[4, 2, 3, 3])).unwrap();
    new().update("w", &flat, &filled(&[4, 18])).unwrap();
    assert_close(&conv, &flat, 0.0, "a convolution");

    for (name, shape) in [("bias", vec![5]), ("head", vec![3, 4])] {
        let (ours, adam) = (var(&shape), var(&shape));
        let mut muon = new();
        muon.set_lr(0.2); // a schedule: the rest follows
        muon.update(name, &ours, &filled(&shape)).unwrap();
        let mut expected = AdamW::new(0.02);
        expected.update(name, &adam, &filled(&shape)).unwrap();
        assert_close(&ours, &adam, 1e-7, name);
        assert!(
            muon.state().parameters[name]
                .tensors
                .contains_key("exp_avg")
        );
    }
}

#[test]
fn groups_have_rates_and_decays_of_their_own() {
    let start: Vec<f64> = golden("/start");
    let gradients: Vec<Vec<f64>> = golden("/gradients");
    let groups = || {
        let options = GroupOptions::new()
            .with_lr_factor(0.25)
            .with_weight_decay(0.0);
        ParamGroups::new().under("b", options)
    };
    let optimizers: [(&str, Box<dyn Optimizer>); 2] = [
        (
            "adamw",
            Box::new(AdamW::new(0.05).weight_decay(0.1).groups(groups())),
        ),
        (
            "sgd",
            Box::new(
                Sgd::new(0.05)
                    .momentum(0.9)
                    .weight_decay(0.1)
                    .groups(groups()),
            ),
        ),
    ];
    for (name, mut optimizer) in optimizers {
        let expected: Vec<[Vec<f64>; 2]> = golden(&format!("/groups/{name}"));
        let [a, b] = [(); 2].map(|()| Var::from_tensor(&vector(&start, DType::F32)).unwrap());
        for (gradient, expected) in gradients.iter().zip(expected) {
            for (path, var) in [("a", &a), ("b.weight", &b)] {
                let gradient = vector(gradient, DType::F32);
                optimizer.update(path, var, &gradient).unwrap();
            }
            for (var, expected) in [&a, &b].into_iter().zip(&expected) {
                assert_close(var, &vector(expected, DType::F32), 5e-6, name);
            }
        }
    }
}

#[test]
fn rules_combine_and_resemble_param_groups() {
    let params = tallow_tensor::Params::f32_cpu();
    let vb = params.builder();
    for (layer, out) in [("stem", 4), ("layer1", 4), ("layer10", 4), ("head", 2)] {
        vb.pp(layer).get((out, 4), "weight").unwrap();
        vb.pp(layer).get(out, "bias").unwrap();
    }
    let groups = ParamGroups::new()
        .layer_decay(0.5, &["stem", "layer1", "layer10", "head"])
        .no_decay_on_norms_and_biases();
    let split = groups.split(&params);
    let factors = |decay: Option<f64>| {
        let of = split.iter().filter(|g| g.options.weight_decay() == decay);
        of.map(|g| (g.options.lr_factor(), g.names.len()))
            .collect::<Vec<_>>()
    };
    let expected = [(0.125, 1), (0.25, 1), (0.5, 1), (1.0, 1)];
    assert_eq!(factors(None), expected);
    assert_eq!(factors(Some(0.0)), expected);
    let negative = GroupOptions::new().with_lr_factor(-1.0);
    let wrong = AdamW::new(0.1).groups(ParamGroups::new().under("stem", negative));
    assert!(wrong.check().unwrap_err().to_string().contains("factor"));
}

/// All optimizers, with groups.
fn everything() -> Vec<Box<dyn Optimizer>> {
    let groups = || {
        let slow = GroupOptions::new().with_lr_factor(0.3);
        ParamGroups::new()
            .no_decay_on_norms_and_biases()
            .when(|name, _| name == "p1", slow)
    };
    vec![
        Box::new(AdamW::new(0.05).groups(groups())),
        Box::new(Sgd::new(0.05).momentum(0.9).groups(groups())),
        Box::new(Sgd::new(0.05).weight_decay(0.1)),
        Box::new(Lamb::new(0.05).groups(groups())),
        Box::new(Muon::new(0.05).groups(groups())),
    ]
}

/// 150 parameters of many lengths, more than are opened at once, and their gradients at a step.
fn many(step: usize) -> (Vec<(String, Var)>, Vec<Tensor>) {
    let tensor = |index: usize, salt: usize| {
        let rows = index % 5 + 1;
        let len = if index == 7 { 70_001 } else { index % 13 + 1 };
        let value = |i: usize| (((i * 31 + index * 17 + salt * 101) % 97) as f32 - 48.0) / 50.0;
        let values: Vec<f32> = (0..rows * len).map(value).collect();
        let shape = if index.is_multiple_of(2) {
            vec![rows, len]
        } else {
            vec![rows * len]
        };
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    };
    let parameters = (0..150).map(|i| (format!("p{i}"), Var::from_tensor(&tensor(i, 0)).unwrap()));
    (
        parameters.collect(),
        (0..150).map(|i| tensor(i, step + 1)).collect(),
    )
}

fn store(parameters: &[(String, Var)], gradients: &[Tensor]) -> candle_core::backprop::GradStore {
    let zero = Tensor::zeros((), DType::F32, &Device::Cpu).unwrap();
    let mut store = zero.backward().unwrap();
    for ((_, var), gradient) in parameters.iter().zip(gradients) {
        store.insert(var, gradient.clone());
    }
    store
}

fn bits(parameters: &[(String, Var)]) -> Vec<Vec<u32>> {
    let values = |var: &Var| var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let of = parameters
        .iter()
        .map(|(_, var)| values(var).into_iter().map(f32::to_bits).collect());
    of.collect()
}

#[test]
fn one_section_gives_the_bits_of_single_updates_for_any_number_of_threads() {
    for (mut single, index) in everything().into_iter().zip(0..) {
        let (expected, _) = many(0);
        for step in 0..3 {
            for ((name, var), gradient) in expected.iter().zip(many(step).1) {
                single.update(name, var, &gradient).unwrap();
            }
        }
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let (parameters, _) = many(0);
            // Optimizers aren't `Send`: made inside.
            let ours = pool.install(|| {
                let mut together = everything().swap_remove(index);
                for step in 0..3 {
                    let mut gradients = store(&parameters, &many(step).1);
                    assert_eq!(together.step(&parameters, &mut gradients).unwrap(), 150);
                }
                bits(&parameters)
            });
            assert_eq!(
                ours,
                bits(&expected),
                "{}, {threads} threads",
                single.algorithm()
            );
        }
    }
}

#[test]
fn a_restored_state_goes_on_with_the_same_bits_groups_included() {
    for (mut first, mut second) in everything().into_iter().zip(everything()) {
        let (parameters, _) = many(0);
        first.set_lr(0.02);
        for step in 0..2 {
            let mut gradients = store(&parameters, &many(step).1);
            first.step(&parameters, &mut gradients).unwrap();
        }
        let copies: Vec<(String, Var)> = parameters
            .iter()
            .map(|(name, var)| {
                (
                    name.clone(),
                    Var::from_tensor(&var.copy().unwrap()).unwrap(),
                )
            })
            .collect();
        second
            .load_state(&first.state().deep_copy().unwrap())
            .unwrap();
        for step in 2..4 {
            first
                .step(&parameters, &mut store(&parameters, &many(step).1))
                .unwrap();
            second
                .step(&copies, &mut store(&copies, &many(step).1))
                .unwrap();
        }
        assert_eq!(bits(&parameters), bits(&copies), "{}", first.algorithm());
        assert_eq!(first.state().settings, second.state().settings);
    }
}

#[test]
fn a_gradient_that_shares_the_memory_of_its_parameter_is_an_error() {
    let var = Var::from_tensor(&Tensor::ones(4, DType::F32, &Device::Cpu).unwrap()).unwrap();
    for mut optimizer in everything().into_iter().take(3) {
        let gradient = var.as_detached_tensor();
        assert!(optimizer.update("w", &var, &gradient).is_err());
    }
}

/// Two parameters with the stored gradients.
fn to_clip() -> (Vec<(String, Var)>, candle_core::backprop::GradStore) {
    let gradients: Vec<Vec<f64>> = golden("/clip/gradients");
    let gradients: Vec<Tensor> = gradients.iter().map(|g| vector(g, DType::F32)).collect();
    let vars = gradients.iter().enumerate();
    let vars = vars.map(|(i, g)| {
        (
            format!("p{i}"),
            Var::from_tensor(&g.zeros_like().unwrap()).unwrap(),
        )
    });
    let vars: Vec<_> = vars.collect();
    let store = store(&vars, &gradients);
    (vars, store)
}

#[test]
fn clipping_gives_pytorchs_norms_and_gradients() {
    for (name, limit) in [("norm_1", 1.0), ("norm_100", 100.0), ("value_half", 0.5)] {
        let (vars, mut store) = to_clip();
        match name {
            "value_half" => clip_grad_value(&vars, &mut store, limit).unwrap(),
            _ => {
                let norm = clip_grad_norm(&vars, &mut store, limit).unwrap();
                let expected: f64 = golden(&format!("/clip/{name}/norm"));
                assert!(
                    (norm - expected).abs() < 1e-6 * expected,
                    "{norm} and {expected}"
                );
            }
        }
        let expected: Vec<Vec<f64>> = golden(&format!("/clip/{name}/clipped"));
        for ((_, var), expected) in vars.iter().zip(expected) {
            let expected = vector(&expected, DType::F32);
            assert_close(store.get(var).unwrap(), &expected, 1e-6, name);
        }
    }
}

#[test]
fn a_gradient_that_is_not_finite_is_named_and_nothing_changes() {
    for bad in [f64::NAN, f64::INFINITY] {
        for clip in [GradientClip::norm(1.0), GradientClip::value(1.0)] {
            let (vars, mut store) = to_clip();
            let kept = store.get(&vars[0].1).unwrap().clone();
            store.insert(&vars[1].1, vector(&[1.0, bad, 0.0, 0.0], DType::F32));
            let error = clip.apply(&vars, &mut store).unwrap_err();
            assert!(
                matches!(&error, Error::NonFiniteGradient { parameter, .. } if parameter == "p1"),
                "{error}"
            );
            assert_close(
                store.get(&vars[0].1).unwrap(),
                &kept,
                0.0,
                "the other gradient",
            );
        }
    }
    assert!(clip_grad_norm(&[], &mut to_clip().1, 0.0).is_err());
}

#[test]
fn later_schedules_give_pytorchs_rates() {
    let base: f64 = golden("/base");
    let growing = LrSchedule::CosineRestarts {
        first: 3,
        growth: 2,
        min_lr: 0.01,
    };
    let sequence = LrSchedule::Sequence {
        parts: vec![
            (4, LrSchedule::constant()),
            (6, LrSchedule::exponential(0.8)),
        ],
        last: Box::new(LrSchedule::cosine(10)),
    };
    let cases = [
        ("multi_step", LrSchedule::multi_step([3, 4, 11], 0.3)),
        ("exponential", LrSchedule::exponential(0.9)),
        ("cosine_restarts", LrSchedule::cosine_restarts(5, 1)),
        ("cosine_restarts_growing", growing),
        ("polynomial", LrSchedule::polynomial(20, 2.0)),
        ("sequence", sequence),
    ];
    let rates: BTreeMap<String, Vec<f64>> = golden("/rates");
    assert_eq!(
        cases.len(),
        rates.len(),
        "every stored schedule is compared"
    );
    for (name, schedule) in cases {
        schedule.check().unwrap();
        // PyTorch's cosine rises again past its end, ours stays.
        let compared = if name == "sequence" { 21 } else { 24 };
        for (step, &expected) in rates[name].iter().enumerate().take(compared) {
            let rate = schedule.lr(base, step as u64);
            let close = (rate - expected).abs() <= 1e-12 * base;
            assert!(close, "{name}, step {step}: {rate}, PyTorch {expected}");
        }
        assert!(schedule.lr(base, u64::MAX).is_finite(), "{name}");
    }
}

#[test]
fn later_schedules_without_sense_are_refused() {
    for schedule in [
        LrSchedule::multi_step([1], f64::NAN),
        LrSchedule::exponential(-1.0),
        LrSchedule::cosine_restarts(0, 1),
        LrSchedule::cosine_restarts(1, 0),
        LrSchedule::polynomial(0, 1.0),
        LrSchedule::polynomial(1, -1.0),
        LrSchedule::constant().then_after(0, LrSchedule::constant()),
        LrSchedule::constant().then_after(1, LrSchedule::cosine(0)),
    ] {
        assert!(schedule.check().is_err(), "{schedule:?}");
    }
}

#[test]
fn a_plateau_gives_pytorchs_rates() {
    let base: f64 = golden("/base");
    let on_loss = ReduceOnPlateau::on_loss()
        .with_factor(0.5)
        .with_patience(1)
        .with_cooldown(2)
        .with_min_lr(0.05);
    let on_accuracy = ReduceOnPlateau::on_accuracy().with_patience(2);
    for (mut plateau, metrics, rates) in [
        (on_loss, "/losses", "/plateau_loss"),
        (on_accuracy, "/accuracies", "/plateau_accuracy"),
    ] {
        plateau.check().unwrap();
        let (metrics, rates): (Vec<f64>, Vec<f64>) = (golden(metrics), golden(rates));
        for (epoch, (metric, expected)) in metrics.into_iter().zip(rates).enumerate() {
            plateau.observe(base, metric);
            let rate = plateau.lr(base);
            assert!(
                (rate - expected).abs() < 1e-12,
                "epoch {epoch}: {rate}, PyTorch {expected}"
            );
        }
    }
    assert!(ReduceOnPlateau::on_loss().with_factor(1.0).check().is_err());
}
