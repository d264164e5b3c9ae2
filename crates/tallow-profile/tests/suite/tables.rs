//! Tables: whose own each moment is.

use std::time::Duration;

use candle_nn::ModuleT;
use tallow_data::Batch;
use tallow_nn::SimpleCifar;
use tallow_profile::{Grouping, Part, Profile};
use tallow_tensor::{ops, scope};
use tallow_train::Trainer;
use tracing::info_span;

use crate::{builder, images, labels, params, record, turn};

const GROUPINGS: [Grouping; 3] = [Grouping::Operation, Grouping::Module, Grouping::Shape];

fn training(compile: bool) -> Profile {
    let _turn = turn();
    let batch = Batch::new(images((8, 3, 32, 32)), labels(8)).unwrap();
    let data = vec![batch; 6];
    let params = params();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let mut trainer = Trainer::builder(model, params);
    if compile {
        trainer = trainer.compile(tallow_compile::Options::default());
    }
    let profiler = builder().start().unwrap();
    let mut trainer = trainer.hook(Box::new(profiler.hook())).build().unwrap();
    trainer.fit(&data, Some(&data[..2].to_vec())).unwrap();
    profiler.finish()
}

#[test]
fn self_times_add_up_to_the_wall_time() {
    let _turn = turn();
    for compile in [false, true] {
        let profile = training(compile);
        let wall = profile.wall().as_nanos() as u64;
        for grouping in GROUPINGS {
            let table = profile.table(grouping);
            let sum: u64 = table.rows.iter().map(|row| row.self_time).sum();
            assert_eq!(sum, wall, "{grouping:?}");
        }
        let parts: u64 = profile.parts().iter().map(|part| part.time).sum();
        assert_eq!(parts, wall);
        // Nearly all of it lies within spans.
        assert!(profile.accounted() > 0.98, "{}", profile.accounted());
    }
}

#[test]
fn a_training_has_its_parts_and_steps() {
    let _turn = turn();
    let eager = training(false);
    let parts =
        |profile: &Profile| -> Vec<Part> { profile.parts().iter().map(|part| part.part).collect() };
    for part in [
        Part::Data,
        Part::Forward,
        Part::Backward,
        Part::Optimizer,
        Part::Evaluation,
    ] {
        assert!(parts(&eager).contains(&part), "{part:?}");
    }
    assert_eq!(eager.steps.len(), 6);
    let compiled = training(true);
    for part in [
        Part::Compile,
        Part::Forward,
        Part::Backward,
        Part::Optimizer,
    ] {
        assert!(parts(&compiled).contains(&part), "{part:?}");
    }
    let update = compiled.table(Grouping::Operation);
    assert_eq!(update.row("adamw").unwrap().calls, 6);
}

#[test]
fn self_time_is_without_what_runs_within() {
    let _turn = turn();
    let profile = record(|| {
        let _outer = info_span!("outer").entered();
        std::thread::sleep(Duration::from_millis(20));
        let _inner = info_span!("inner").entered();
        std::thread::sleep(Duration::from_millis(40));
    });
    let table = profile.table(Grouping::Operation);
    let (outer, inner) = (table.row("outer").unwrap(), table.row("inner").unwrap());
    assert_eq!(outer.total_time, outer.self_time + inner.total_time);
    assert_eq!(inner.self_time, inner.total_time);
    assert!(inner.self_time >= 40_000_000 && outer.self_time >= 20_000_000);
    assert!(outer.self_time < outer.total_time - 39_000_000);
}

#[test]
fn a_span_within_one_of_its_name_counts_once_in_the_total() {
    let _turn = turn();
    let profile = record(|| {
        let _outer = info_span!("again").entered();
        let _inner = info_span!("again").entered();
        std::thread::sleep(Duration::from_millis(5));
    });
    let row = profile
        .table(Grouping::Operation)
        .row("again")
        .cloned()
        .unwrap();
    assert_eq!(row.calls, 2);
    assert_eq!(row.total_time, row.self_time);
}

#[test]
fn rows_are_operations_modules_or_shapes() {
    let _turn = turn();
    let profile = record(|| {
        for size in [2, 2, 3] {
            let _module = scope::enter("block");
            let _part = scope::enter_child("act");
            ops::relu(&images((1, 1, size, size))).unwrap();
        }
    });
    let calls = |grouping, label: &str| {
        let table = profile.table(grouping);
        table.row(label).map(|row| row.calls)
    };
    assert_eq!(calls(Grouping::Operation, "relu"), Some(3));
    assert_eq!(calls(Grouping::Module, "block.act"), Some(3));
    assert_eq!(calls(Grouping::Module, "block"), Some(3));
    let shape = |size: usize| format!("relu [1, 1, {size}, {size}] -> [1, 1, {size}, {size}]");
    assert_eq!(calls(Grouping::Shape, &shape(2)), Some(2));
    assert_eq!(calls(Grouping::Shape, &shape(3)), Some(1));
    let table = profile.table(Grouping::Module);
    let (block, act) = (table.row("block").unwrap(), table.row("block.act").unwrap());
    assert!(block.total_time >= act.total_time && act.flops == 4 + 4 + 9);
}

#[test]
fn eager_gradients_keep_the_modules_of_their_forward_pass() {
    let _turn = turn();
    let model = SimpleCifar::new(3, 10, params().builder()).unwrap();
    let x = images((2, 3, 16, 16));
    let profile = record(|| {
        let outputs = model.forward_t(&x, true).unwrap();
        let loss = ops::cross_entropy(&outputs, &labels(2), &Default::default()).unwrap();
        loss.backward().unwrap();
    });
    let backward = profile
        .spans
        .iter()
        .filter(|span| span.name == "op_backward");
    let found: Vec<(&str, &str)> = backward
        .map(|span| (span.label(), span.module.as_deref().unwrap_or_default()))
        .collect();
    assert!(
        found.contains(&("conv2d_backward", "features.2.conv")),
        "{found:?}"
    );
    assert!(
        found.contains(&("batch_norm_backward", "features.0.bn")),
        "{found:?}"
    );
    assert!(found.contains(&("linear_backward", "fc")), "{found:?}");
}

#[test]
fn text_and_shares_of_the_peak() {
    let _turn = turn();
    let profiler = tallow_profile::Profiler::start().unwrap();
    let x = images((1, 1, 256, 256)).reshape((256, 256)).unwrap();
    ops::matmul(&x, &x).unwrap();
    let profile = profiler.finish();
    let machine = profile.machine.unwrap();
    assert!(machine.flops > 1e8 && machine.bandwidth > 1e8);
    let table = profile.table(Grouping::Operation);
    let share = table
        .row("matmul")
        .unwrap()
        .share_of_peak(&machine)
        .unwrap();
    assert!(share > 0.0);
    let text = table.to_string();
    assert!(
        text.contains("matmul") && text.contains("GFLOP/s"),
        "{text}"
    );
}
