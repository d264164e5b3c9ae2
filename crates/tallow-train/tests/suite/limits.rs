//! How much of the data is seen: limits, one batch by heart, a rehearsal of the evaluation, a run of one batch.

use std::sync::{Arc, Mutex};

use tallow_data::{Batch, BatchSource, Batches};
use tallow_train::hooks::{CheckpointFolder, CsvLog, JsonLog, TensorBoard};
use tallow_train::{AdamW, Error, Hook, HookContext, LrSchedule, Result};

use crate::checkpoint_folder::names;
use crate::toy::{Toy, batch, batches, bits, quiet, toy};

/// Epochs and batches.
type Reads = Arc<Mutex<Vec<(u64, usize)>>>;

/// Notes which batches of which epochs are read.
struct Noting {
    batches: Vec<Batch>,
    read: Reads,
}

impl Noting {
    fn new(count: usize) -> (Self, Reads) {
        let read = Reads::default();
        let source = Self {
            batches: batches(count),
            read: read.clone(),
        };
        (source, read)
    }
}

impl BatchSource for Noting {
    fn epoch(&self, epoch: u64) -> tallow_data::Result<Batches<'_>> {
        let batches = self.batches.iter().enumerate();
        Ok(Box::new(batches.map(move |(index, batch)| {
            self.read.lock().unwrap().push((epoch, index));
            Ok(batch.clone())
        })))
    }

    fn len_hint(&self) -> Option<usize> {
        Some(self.batches.len())
    }
}

#[test]
fn limits_cut_epochs_evaluations_and_the_schedule() {
    let (train, read) = Noting::new(5);
    let (evaluation, evaluated) = Noting::new(5);
    let (model, params) = toy();
    let mut trainer = quiet(model, params)
        .optimizer(AdamW::new(0.1))
        .schedule_over_training(LrSchedule::cosine)
        .limit_train_batches(2)
        .limit_eval_batches(3)
        .epochs(2)
        .build()
        .unwrap();
    let history = trainer.fit(&train, Some(&evaluation)).unwrap();
    assert_eq!(*read.lock().unwrap(), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    assert_eq!(evaluated.lock().unwrap().len(), 6);
    assert_eq!(history.epochs[1].steps, 4);
    assert_eq!(history.epochs[1].lr, LrSchedule::cosine(4).lr(0.1, 3));
    let metrics = trainer.evaluate(&evaluation).unwrap();
    assert_eq!(metrics.samples, 18);
}

#[test]
fn the_first_batches_are_learned_by_heart() {
    let (train, read) = Noting::new(4);
    let (model, params) = toy();
    let mut trainer = quiet(model, params)
        .optimizer(AdamW::new(0.05))
        .overfit_batches(1)
        .epochs(60)
        .build()
        .unwrap();
    let history = trainer.fit(&train, Some(&batches(4))).unwrap();
    assert!(read.lock().unwrap().iter().all(|read| *read == (0, 0)));
    let evaluation = history.last().unwrap().evaluation.clone().unwrap();
    assert_eq!((evaluation.samples, evaluation.accuracy), (6, 1.0));
}

/// Counts what it is told of.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<&'static str>>>);

impl Hook for Calls {
    fn on_step_end(&mut self, _: &mut HookContext<'_>) -> Result<()> {
        self.0.lock().unwrap().push("step");
        Ok(())
    }
    fn on_evaluate_begin(&mut self, _: &mut HookContext<'_>) -> Result<()> {
        self.0.lock().unwrap().push("evaluation");
        Ok(())
    }
    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        assert!(context.is_dev_run());
        self.0.lock().unwrap().push("epoch");
        Ok(())
    }
}

#[test]
fn a_rehearsal_finds_a_broken_evaluation_before_the_first_step() {
    let mut broken = batches(1);
    broken[0].labels = candle_core::Tensor::new(&[9u32; 6], &candle_core::Device::Cpu).unwrap();
    let (model, params) = toy();
    let before = bits(&params);
    let mut trainer = quiet(model, params.clone())
        .sanity_evaluation(2)
        .build()
        .unwrap();
    assert!(trainer.fit(&batches(2), Some(&broken)).is_err());
    assert_eq!((trainer.steps(), bits(&params)), (0, before));

    let trained = |rehearse: bool| {
        let (source, read) = Noting::new(3);
        let (model, params) = toy();
        let builder = quiet(model, params.clone());
        let builder = if rehearse {
            builder.sanity_evaluation(2)
        } else {
            builder
        };
        builder
            .build()
            .unwrap()
            .fit(&batches(2), Some(&source))
            .unwrap();
        let read = read.lock().unwrap().len();
        (bits(&params), read)
    };
    let (plain, rehearsed) = (trained(false), trained(true));
    assert_eq!(plain.0, rehearsed.0, "nothing of it stays");
    assert_eq!((plain.1, rehearsed.1), (3, 5));
}

#[test]
fn a_fast_dev_run_does_one_of_everything_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let calls = Calls::default();
    let (model, params) = toy();
    let mut trainer = quiet(model, params)
        .epochs(50)
        .hook(Box::new(calls.clone()))
        .hook(Box::new(CsvLog::new(at("log.csv"))))
        .hook(Box::new(JsonLog::new(at("log.jsonl")).every_steps(1)))
        .hook(Box::new(TensorBoard::new(at("tb"))))
        .hook(Box::new(CheckpointFolder::new(at("checkpoints"))))
        .checkpoint(at("checkpoint.safetensors"))
        .run_folder(at("run"))
        .fast_dev_run()
        .build()
        .unwrap();
    let history = trainer.fit(&batches(9), Some(&batches(9))).unwrap();
    assert_eq!(history.epochs.len(), 1);
    assert_eq!(history.epochs[0].evaluation.as_ref().unwrap().samples, 6);
    assert_eq!(*calls.0.lock().unwrap(), ["step", "evaluation", "epoch"]);
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn a_limit_of_nothing_is_refused() {
    type Settings = tallow_train::TrainerBuilder<Toy>;
    let cases: [fn(Settings) -> Settings; 4] = [
        |b| b.limit_train_batches(0),
        |b| b.limit_eval_batches(0),
        |b| b.sanity_evaluation(0),
        |b| b.overfit_batches(0),
    ];
    for change in cases {
        let (model, params) = toy();
        let error = change(quiet(model, params)).build().err().unwrap();
        assert!(matches!(error, Error::Setting { .. }), "{error}");
    }
    assert_eq!(batch(0, 2).len(), 2);
}
