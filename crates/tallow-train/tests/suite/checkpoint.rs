//! Checkpoints: what is in the file, what is refused, and what a failure leaves behind.

use std::fs;
use std::path::{Path, PathBuf};

use crate::toy::{Toy, batches, bits, quiet, toy, toy_of_width};
use tallow_tensor::params::{Strict, TensorFile};
use tallow_train::{
    AdamW, CheckpointProblem, Checkpointing, Error, Hook, HookContext, Result, Sgd, Trainer,
};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A trainer after one epoch of three steps, and its checkpoint.
fn saved(folder: &TempDir) -> (Trainer<Toy>, PathBuf) {
    let path = folder.path().join("runs/first/checkpoint.safetensors");
    let (model, params) = toy();
    params.freeze("hidden.bias");
    let mut trainer = quiet(model, params).checkpoint(&path).build().unwrap();
    trainer.fit(&batches(3), None).unwrap();
    (trainer, path)
}

/// The error of resuming a toy from `path`, after checking that nothing was changed.
fn refused(path: &Path) -> Error {
    let (model, params) = toy();
    let before = bits(&params);
    let error = quiet(model, params.clone()).resume(path).build().err();
    assert_eq!(bits(&params), before, "nothing is modified");
    assert!(
        params.iter().all(|entry| !entry.frozen),
        "nothing is frozen"
    );
    let error = error.expect("the checkpoint is refused");
    let message = error.to_string();
    assert!(
        message.contains(&path.display().to_string()),
        "names the file: {message}"
    );
    error
}

#[test]
fn the_file_holds_parameters_by_name_and_loads_as_weights() {
    let folder = folder();
    let (trainer, path) = saved(&folder);
    let file = TensorFile::open(&path).unwrap();
    for entry in trainer.params() {
        assert_eq!(
            file.shape(&entry.name),
            Some(entry.var.dims()),
            "{}",
            entry.name
        );
    }
    assert!(
        file.names()
            .any(|name| name == "__tallow__.optimizer.exp_avg.head.weight")
    );

    let (_, params) = toy_of_width(8);
    let (_, other) = toy();
    other.load(&path, Strict::Yes).unwrap();
    assert_eq!(bits(&other), bits(trainer.params()));
    assert_ne!(bits(&other), bits(&params));
}

#[test]
fn equal_states_give_equal_files() {
    let folder = folder();
    let (trainer, first) = saved(&folder);
    let second = folder.path().join("second.safetensors");
    trainer.save_checkpoint(&second).unwrap();
    assert_eq!(fs::read(first).unwrap(), fs::read(second).unwrap());
}

#[test]
fn a_resume_restores_optimizer_settings_freezes_history_and_place() {
    let folder = folder();
    let path = folder.path().join("checkpoint.safetensors");
    let (model, params) = toy();
    params.freeze("hidden");
    let sgd = Sgd::new(0.125).momentum(0.5).weight_decay(0.25);
    let mut first = quiet(model, params)
        .optimizer(sgd)
        .checkpoint(&path)
        .build()
        .unwrap();
    first.fit(&batches(3), Some(&batches(1))).unwrap();

    let (model, params) = toy();
    let builder = quiet(model, params).optimizer(Sgd::new(0.9)).resume(&path);
    let second = builder.build().unwrap();
    assert_eq!(second.steps(), 3);
    assert_eq!(second.history(), first.history());
    let settings = second.optimizer().state().settings;
    assert_eq!(
        (
            settings["lr"],
            settings["momentum"],
            settings["weight_decay"]
        ),
        (0.125, 0.5, 0.25)
    );
    let frozen: Vec<_> = second
        .params()
        .iter()
        .filter(|e| e.frozen)
        .map(|e| e.name)
        .collect();
    assert_eq!(frozen, ["hidden.weight", "hidden.bias"]);
}

#[test]
fn a_finished_training_can_be_given_more_epochs() {
    let folder = folder();
    let (_, path) = saved(&folder);
    let (model, params) = toy();
    let mut trainer = quiet(model, params)
        .epochs(3)
        .resume(&path)
        .build()
        .unwrap();
    let history = trainer.fit(&batches(3), None).unwrap();
    assert_eq!((history.epochs.len(), trainer.steps()), (3, 9));
}

#[test]
fn a_checkpoint_of_another_model_is_refused_with_the_differences() {
    let folder = folder();
    let path = folder.path().join("wide.safetensors");
    let (model, params) = toy_of_width(9);
    quiet(model, params)
        .build()
        .unwrap()
        .save_checkpoint(&path)
        .unwrap();
    let error = refused(&path);
    let Error::Checkpoint {
        problem: CheckpointProblem::OtherModel(report),
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(report.mismatched.len(), 3);
    let message = error.to_string();
    assert!(
        message.contains("hidden.weight") && message.contains("[9, 16]"),
        "{message}"
    );
}

#[test]
fn a_checkpoint_of_another_optimizer_is_refused_with_both_names() {
    let folder = folder();
    let path = folder.path().join("sgd.safetensors");
    let (model, params) = toy();
    let mut trainer = quiet(model, params)
        .optimizer(Sgd::new(0.1))
        .build()
        .unwrap();
    trainer.fit(&batches(1), None).unwrap();
    trainer.save_checkpoint(&path).unwrap();
    let message = refused(&path).to_string();
    assert!(
        message.contains("`sgd`") && message.contains("`adamw`"),
        "{message}"
    );
}

#[test]
fn weights_alone_are_no_checkpoint() {
    let folder = folder();
    let path = folder.path().join("weights.safetensors");
    toy().1.save(&path).unwrap();
    let error = refused(&path);
    let problem = CheckpointProblem::NoTraining.to_string();
    assert!(error.to_string().ends_with(&problem), "{error}");
    assert!(problem.contains("Params::load"), "says what to do");
}

#[test]
fn a_missing_file_is_named() {
    let folder = folder();
    let error = refused(&folder.path().join("nowhere.safetensors"));
    assert!(matches!(error, Error::File(_)), "{error}");
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let folder = folder();
    let (_, path) = saved(&folder);
    let whole = fs::read(&path).unwrap();
    let cut = folder.path().join("cut.safetensors");
    for length in [0, 1, 7, 8, 9, 100, 1000, whole.len() / 2, whole.len() - 1] {
        fs::write(&cut, &whole[..length]).unwrap();
        refused(&cut);
    }
}

#[test]
fn a_changed_byte_anywhere_is_noticed() {
    let folder = folder();
    let (_, path) = saved(&folder);
    let whole = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.safetensors");
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    // All of the tensors, and every part of the header but the blanks that fill it up.
    let text = whole[..header]
        .iter()
        .rposition(|&byte| byte == b'}')
        .unwrap();
    let places = (0..=text)
        .step_by(37)
        .chain((header..whole.len()).step_by(101));
    for place in places {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        fs::write(&damaged, &bytes).unwrap();
        refused(&damaged);
    }
}

#[test]
fn a_damaged_tensor_is_named() {
    let folder = folder();
    let (_, path) = saved(&folder);
    let mut bytes = fs::read(&path).unwrap();
    let file = TensorFile::open(&path).unwrap();
    let last = file.names().last().unwrap().to_string();
    *bytes.last_mut().unwrap() ^= 0x80;
    fs::write(&path, bytes).unwrap();
    let message = refused(&path).to_string();
    assert!(
        message.contains(&format!("`{last}` is damaged")),
        "{message}"
    );
}

#[test]
fn a_later_format_is_refused_by_its_version() {
    let folder = folder();
    let path = folder.path().join("later.safetensors");
    let text = r#"{"version":2,"new":true}"#;
    let metadata = [
        ("tallow".to_string(), text.to_string()),
        (
            "tallow.crc32".to_string(),
            format!("{:08x}", crc32fast::hash(text.as_bytes())),
        ),
    ];
    toy().1.save_with(&path, &metadata.into()).unwrap();
    let message = refused(&path).to_string();
    assert!(
        message.contains("format version 2, this program reads up to version 1"),
        "{message}"
    );
}

#[test]
fn resuming_with_data_of_another_length_in_the_middle_of_an_epoch_is_an_error() {
    struct StopAtTwo;
    impl Hook for StopAtTwo {
        fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
            if context.step() == 2 {
                context.request_stop();
            }
            Ok(())
        }
    }
    let folder = folder();
    let path = folder.path().join("checkpoint.safetensors");
    let (model, params) = toy();
    let builder = quiet(model, params)
        .hook(Box::new(StopAtTwo))
        .checkpoint(&path);
    builder.build().unwrap().fit(&batches(5), None).unwrap();

    let (model, params) = toy();
    let mut trainer = quiet(model, params).resume(&path).build().unwrap();
    let message = trainer.fit(&batches(4), None).unwrap_err().to_string();
    assert!(
        message.contains("5 batches an epoch, found 4 batches"),
        "{message}"
    );
}

/// Counts writes by their length on disk; the file must be whole each time.
#[test]
fn checkpoints_are_written_every_n_steps_and_at_the_end() {
    struct Watch {
        path: PathBuf,
        steps: Vec<u64>,
        report: std::sync::mpsc::Sender<Vec<u64>>,
    }
    impl Hook for Watch {
        fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
            if self.path.exists() {
                self.steps.push(context.step());
                fs::remove_file(&self.path).unwrap();
            }
            Ok(())
        }
        fn on_fit_end(&mut self, _: &mut HookContext<'_>) -> Result<()> {
            self.report.send(std::mem::take(&mut self.steps)).unwrap();
            Ok(())
        }
    }
    let folder = folder();
    let path = folder.path().join("checkpoint.safetensors");
    let (report, written) = std::sync::mpsc::channel();
    let watch = Watch {
        path: path.clone(),
        steps: Vec::new(),
        report,
    };
    let (model, params) = toy();
    let mut trainer = quiet(model, params)
        .hook(Box::new(Checkpointing::new(&path).every_steps(3)))
        .hook(Box::new(watch))
        .epochs(2)
        .build()
        .unwrap();
    trainer.fit(&batches(4), None).unwrap();
    assert_eq!(written.recv().unwrap(), [3, 6]);
    let (model, params) = toy();
    let resumed = quiet(model, params).resume(&path).build().unwrap();
    assert_eq!(resumed.steps(), 8, "the one of the end");
}

#[test]
fn an_interval_of_zero_is_refused() {
    let folder = folder();
    let path = folder.path().join("checkpoint.safetensors");
    let (model, params) = toy();
    let hook = Checkpointing::new(&path).every_epochs(0);
    let mut trainer = quiet(model, params).hook(Box::new(hook)).build().unwrap();
    let message = trainer.fit(&batches(1), None).unwrap_err().to_string();
    assert!(
        message.contains("interval between checkpoints"),
        "{message}"
    );
}

#[test]
fn a_folder_that_cannot_be_made_is_named_before_training_begins() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let (model, params) = toy();
    let before = bits(&params);
    let builder = quiet(model, params.clone()).checkpoint(file.join("checkpoint.safetensors"));
    let error = builder.build().unwrap().fit(&batches(1), None).unwrap_err();
    assert!(matches!(error, Error::Folder { .. }), "{error}");
    assert!(
        error.to_string().contains(&file.display().to_string()),
        "{error}"
    );
    assert_eq!(bits(&params), before);
}

/// Runs itself again under a file-size limit that the new checkpoint does not fit in.
#[cfg(unix)]
#[test]
fn an_earlier_checkpoint_survives_a_failed_write() {
    const FOLDER: &str = "TALLOW_TEST_FOLDER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let path = Path::new(&folder).join("checkpoint.safetensors");
        let (model, params) = toy_of_width(20_000);
        let trainer = quiet(model, params)
            .optimizer(AdamW::new(0.1))
            .build()
            .unwrap();
        let error = trainer.save_checkpoint(&path).unwrap_err();
        assert!(matches!(error, Error::File(_)), "{error}");
        assert!(
            error.to_string().contains(&path.display().to_string()),
            "{error}"
        );
        return;
    }
    let folder = folder();
    let (_, first) = saved(&folder);
    let path = folder.path().join("checkpoint.safetensors");
    fs::rename(first, &path).unwrap();
    let before = fs::read(&path).unwrap();

    let this = std::env::current_exe().unwrap();
    let limited = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""])
        .arg(this)
        .args([
            "--exact",
            "checkpoint::an_earlier_checkpoint_survives_a_failed_write",
        ])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    assert!(
        limited.status.success(),
        "{}",
        String::from_utf8_lossy(&limited.stdout)
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    let names = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name != "runs").collect();
    assert_eq!(
        left,
        ["checkpoint.safetensors"],
        "no temporary file is left"
    );
}
