//! Compiled code is recorded with modules and shapes, on whatever thread it runs.

use candle_core::Tensor;
use candle_nn::ModuleT;
use tallow_compile::{Options, StepCompiler, compile};
use tallow_nn::SimpleCifar;
use tallow_profile::Grouping;
use tallow_tensor::ops;
use tracing::info_span;

use crate::{images, labels, params, record, turn};

#[test]
fn kernels_of_a_training_step_have_modules_and_shapes() {
    let _turn = turn();
    let params = params();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let (x, y) = (images((4, 3, 32, 32)), labels(4));
    let mut steps = StepCompiler::new(Options::default()).unwrap();
    let mut step = || {
        let forward = |images: &Tensor, labels: &Tensor| {
            let outputs = model.forward_t(images, true)?;
            let loss = ops::cross_entropy(&outputs, labels, &Default::default())?;
            Ok((loss, outputs))
        };
        steps.run(&params, &x, &y, forward).unwrap();
    };
    step();
    let profile = record(|| {
        let _span = info_span!("train").entered();
        step();
    });
    let kernels: Vec<_> = profile
        .spans
        .iter()
        .filter(|span| span.name == "kernel")
        .collect();
    let gradient = kernels.iter().find(|span| {
        span.label() == "conv2d_backward_weight"
            && span.module.as_deref() == Some("features.1.conv")
    });
    let gradient = gradient.unwrap();
    assert!(
        gradient
            .shape
            .as_deref()
            .unwrap()
            .ends_with("-> [128, 64, 3, 3]")
    );
    assert_eq!(gradient.flops, 2 * 4 * 16 * 16 * 128 * 64 * 9);
    // They are children of the plan, and that of the caller's span, although another thread ran them.
    let plan = profile
        .spans
        .iter()
        .find(|span| span.name == "plan")
        .unwrap();
    assert!(kernels.iter().all(|span| span.parent == Some(plan.id)));
    let train = profile
        .spans
        .iter()
        .find(|span| span.name == "train")
        .unwrap();
    assert_eq!(
        (plan.parent, train.thread),
        (Some(train.id), profile.main_thread)
    );
    assert_ne!(plan.thread, train.thread);
    let table = profile.table(Grouping::Module);
    assert!(table.row("features.1.conv").unwrap().flops > 0);
}

#[test]
fn compiling_is_seen_and_named() {
    let _turn = turn();
    let model = SimpleCifar::new(3, 10, params().builder()).unwrap();
    let x = images((2, 3, 32, 32));
    let profile = record(|| {
        let compiled = compile(&model, &x, Options::default()).unwrap();
        compiled.forward(&images((3, 3, 32, 32))).unwrap();
    });
    let main = profile.main_thread;
    let compiles = profile
        .spans
        .iter()
        .filter(|span| span.name == "compile" && span.thread == main);
    let signatures: Vec<&str> = compiles
        .filter_map(|span| span.field("signature"))
        .collect();
    assert_eq!(signatures, ["(f32[2, 3, 32, 32])", "(f32[3, 3, 32, 32])"]);
    let text = profile.bottlenecks().to_string();
    assert!(
        text.contains("Compiled again 1 times") && text.contains("f32[3, 3, 32, 32]"),
        "{text}"
    );
    assert!(text.contains("drop_last"), "{text}");
}

#[test]
fn a_plan_without_a_span_around_it_is_its_callers() {
    let _turn = turn();
    let model = SimpleCifar::new(3, 10, params().builder()).unwrap();
    let x = images((2, 3, 32, 32));
    let compiled = compile(&model, &x, Options::default()).unwrap();
    let profile = record(|| drop::<Tensor>(compiled.forward(&x).unwrap()));
    let table = profile.table(Grouping::Operation);
    assert_eq!(
        table
            .rows
            .iter()
            .find(|row| row.label == "plan")
            .unwrap()
            .calls,
        1
    );
}
