//! A folder for a run: its files, and going on with it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tallow_train::hooks::{Better, RunFolder, TimeLimit};
use tallow_train::{AdamW, Error, Hook, HookContext, LrSchedule, Result, TrainerBuilder};

use crate::checkpoint_folder::names;
use crate::toy::{Toy, batches, bits, quiet, toy};

type Bits = Vec<(String, Vec<u32>)>;

fn settings(run: RunFolder) -> (TrainerBuilder<Toy>, impl Fn() -> Bits) {
    let (model, params) = toy();
    let builder = quiet(model, params.clone())
        .optimizer(AdamW::new(0.02).weight_decay(0.1))
        .schedule_over_training(LrSchedule::one_cycle)
        .epochs(3)
        .seed(7)
        .run_folder(run);
    (builder, move || bits(&params))
}

fn run(folder: &Path) -> RunFolder {
    RunFolder::new(folder.join("run")).best("evaluation/accuracy", Better::Higher)
}

#[test]
fn settings_logs_curves_and_checkpoints_stand_in_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (builder, _) = settings(run(folder.path()));
    let mut trainer = builder.build().unwrap();
    trainer.fit(&batches(4), Some(&batches(2))).unwrap();
    let run = folder.path().join("run");
    let expected = [
        "checkpoints",
        "config.json",
        "curves.svg",
        "log.csv",
        "log.jsonl",
        "tensorboard",
    ];
    assert_eq!(names(&run), expected);
    let checkpoints = names(&run.join("checkpoints"));
    assert_eq!(checkpoints[0], "best-evaluation-accuracy.safetensors");

    let config: Value =
        serde_json::from_slice(&fs::read(run.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["epochs"], 3);
    assert_eq!(config["seed"], 7);
    assert_eq!(config["optimizer"]["algorithm"], "adamw");
    assert_eq!(config["optimizer"]["settings"]["weight_decay"], 0.1);
    assert_eq!(config["schedule"]["steps"], 12);
    assert_eq!(config["limits"]["train_batches"], Value::Null);
    let svg = fs::read_to_string(run.join("curves.svg")).unwrap();
    for part in ["<svg", "accuracy", "evaluation", "<polyline", "</svg>"] {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn a_folder_with_a_run_is_refused_unless_it_is_to_be_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let (builder, _) = settings(run(folder.path()));
    builder
        .build()
        .unwrap()
        .fit(&batches(4), Some(&batches(2)))
        .unwrap();
    let (builder, _) = settings(run(folder.path()));
    let error = builder.build().err().unwrap();
    assert!(
        error.to_string().contains("RunFolder::resume(true)"),
        "{error}"
    );
}

/// Fails after a step, as a kill would end it.
struct Die(u64);

impl Hook for Die {
    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        match context.step() == self.0 {
            true => Err(Error::hook("killed")),
            false => Ok(()),
        }
    }
}

#[test]
fn a_run_is_begun_or_gone_on_with_by_the_same_program() {
    let whole = tempfile::tempdir().unwrap();
    let (builder, bits) = settings(run(whole.path()));
    builder
        .build()
        .unwrap()
        .fit(&batches(4), Some(&batches(2)))
        .unwrap();
    let expected = bits();

    let folder = tempfile::tempdir().unwrap();
    let again = || run(folder.path()).resume(true).checkpoint_every_steps(3);
    for kill in [1, 2, 4, 7, 12] {
        let (builder, _) = settings(again());
        let mut trainer = builder.hook(Box::new(Die(kill))).build().unwrap();
        trainer.fit(&batches(4), Some(&batches(2))).unwrap_err();
    }
    let (builder, bits) = settings(again());
    let mut trainer = builder.build().unwrap();
    trainer.fit(&batches(4), Some(&batches(2))).unwrap();
    assert_eq!(bits(), expected);
    let rows = |folder: &Path| {
        fs::read_to_string(folder.join("run/log.csv"))
            .unwrap()
            .lines()
            .count()
    };
    assert_eq!(rows(folder.path()), rows(whole.path()));
}

#[test]
fn a_time_limit_ends_after_a_step_and_the_rest_is_done_later() {
    let folder = tempfile::tempdir().unwrap();
    let (builder, whole) = settings(RunFolder::new(folder.path().join("whole")));
    let long = Box::new(TimeLimit::new(Duration::MAX));
    builder
        .hook(long)
        .build()
        .unwrap()
        .fit(&batches(4), None)
        .unwrap();
    let none = || Box::new(TimeLimit::new(Duration::ZERO));
    for steps in 1..=12 {
        let (builder, parts) = settings(RunFolder::new(folder.path().join("run")).resume(true));
        let mut trainer = builder.hook(none()).build().unwrap();
        trainer.fit(&batches(4), None).unwrap();
        assert_eq!(trainer.steps(), steps);
        assert_eq!(parts() == whole(), steps == 12);
    }
}
