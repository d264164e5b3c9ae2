//! Which checkpoints of a folder are kept, and which of them a training is resumed from.

use std::fs;
use std::path::Path;

use tallow_train::hooks::{Better, CheckpointFolder};
use tallow_train::{Hook, HookContext, Result};
use tempfile::TempDir;

use crate::toy::{batches, bits, quiet, toy};

/// The names of the files of a folder, in order.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Records a number of its own choice at the end of every epoch.
struct Score(&'static [f64]);

impl Hook for Score {
    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        let value = self.0[context.epoch() as usize];
        context.record("score", value)
    }
}

fn trained(folder: &TempDir, hook: CheckpointFolder, epochs: u64) -> Vec<(String, Vec<u32>)> {
    let (model, params) = toy();
    let mut trainer = quiet(model, params.clone())
        .hook(Box::new(Score(&[1.0, 3.0, 2.0, 3.0, 0.5])))
        .hook(Box::new(hook))
        .epochs(epochs)
        .build()
        .unwrap();
    trainer.fit(&batches(3), None).unwrap();
    assert!(folder.path().exists());
    bits(&params)
}

#[test]
fn the_last_and_the_best_are_kept_and_latest_names_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let hook = CheckpointFolder::new(folder.path())
        .every_steps(2)
        .keep_last(2)
        .best("score", Better::Higher)
        .best("train/loss", Better::Lower);
    trained(&folder, hook, 5);
    let expected = [
        "best-score.safetensors",
        "best-train-loss.safetensors",
        "latest",
        "step-0000000014.safetensors",
        "step-0000000015.safetensors",
    ];
    assert_eq!(names(folder.path()), expected);
    let latest = fs::read_to_string(folder.path().join("latest")).unwrap();
    assert_eq!(latest, "step-0000000015.safetensors\n");

    let (model, params) = toy();
    let best = folder.path().join("best-score.safetensors");
    let trainer = quiet(model, params).resume(&best).build().unwrap();
    assert_eq!(trainer.history().epochs.len(), 2, "of equal ones the first");
}

#[test]
fn a_resume_takes_the_newest_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    trained(&folder, CheckpointFolder::new(folder.path()), 4);
    let resumed = |expected: &str| {
        let (model, params) = toy();
        let trainer = quiet(model, params).resume(folder.path()).build().unwrap();
        let from = trainer.resumed_from().unwrap().file_name().unwrap();
        assert_eq!(from, expected);
    };
    resumed("step-0000000012.safetensors");
    let damage = |name: &str, change: fn(&mut Vec<u8>)| {
        let path = folder.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    };
    damage("step-0000000012.safetensors", |bytes| bytes.truncate(1000));
    resumed("step-0000000009.safetensors");
    damage("step-0000000009.safetensors", |bytes| {
        *bytes.last_mut().unwrap() ^= 1
    });
    resumed("step-0000000006.safetensors");
    damage("step-0000000006.safetensors", Vec::clear);

    let (model, params) = toy();
    let error = quiet(model, params).resume(folder.path()).build().err();
    let message = error.unwrap().to_string();
    for part in [
        "no checkpoint that is whole",
        "step-0000000006",
        "step-0000000012",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let empty = tempfile::tempdir().unwrap();
    let (model, params) = toy();
    let error = quiet(model, params).resume(empty.path()).build().err();
    assert!(error.unwrap().to_string().contains("no checkpoint"));
}

#[test]
fn going_back_continues_from_there_and_removes_nothing_of_later() {
    let folder = tempfile::tempdir().unwrap();
    let keep = || CheckpointFolder::new(folder.path()).keep_last(4);
    let whole = trained(&folder, keep(), 4);
    let (model, params) = toy();
    let mut trainer = quiet(model, params.clone())
        .hook(Box::new(keep().keep_last(1)))
        .resume(folder.path().join("step-0000000003.safetensors"))
        .epochs(2)
        .build()
        .unwrap();
    trainer.fit(&batches(3), None).unwrap();
    let steps = |name: &String| name.starts_with("step");
    let left: Vec<String> = names(folder.path()).into_iter().filter(steps).collect();
    assert_eq!(
        left,
        [
            "step-0000000006.safetensors",
            "step-0000000009.safetensors",
            "step-0000000012.safetensors"
        ]
    );

    let (model, params) = toy();
    let mut trainer = quiet(model, params.clone())
        .resume(folder.path())
        .epochs(4)
        .build()
        .unwrap();
    assert_eq!(trainer.steps(), 6, "`latest` says where the training is");
    trainer.fit(&batches(3), None).unwrap();
    assert_eq!(bits(&params), whole);
}

#[test]
fn a_new_training_does_not_write_over_another_one() {
    let folder = tempfile::tempdir().unwrap();
    trained(&folder, CheckpointFolder::new(folder.path()), 1);
    let before = names(folder.path());
    let (model, params) = toy();
    let hook = Box::new(CheckpointFolder::new(folder.path()));
    let mut trainer = quiet(model, params).hook(hook).build().unwrap();
    let message = trainer.fit(&batches(3), None).unwrap_err().to_string();
    assert!(
        message.contains("resume from it, or choose another"),
        "{message}"
    );
    assert_eq!(names(folder.path()), before);
}

#[test]
fn a_metric_that_nobody_records_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let hook = CheckpointFolder::new(folder.path()).best("evaluation/acuracy", Better::Higher);
    let (model, params) = toy();
    let mut trainer = quiet(model, params).hook(Box::new(hook)).build().unwrap();
    let message = trainer
        .fit(&batches(1), Some(&batches(1)))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("`evaluation/acuracy`") && message.contains("evaluation/accuracy,"),
        "{message}"
    );
}
