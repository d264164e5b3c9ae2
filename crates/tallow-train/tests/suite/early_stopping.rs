//! Early stopping: when it stops, what it restores, and that a resume judges alike.

use std::sync::{Arc, Mutex};

use candle_core::Tensor;
use candle_nn::{ModuleT, VarBuilder};
use tallow_tensor::{Params, params};
use tallow_train::hooks::{Better, CheckpointFolder, EarlyStopping};
use tallow_train::{Checkpointing, Hook, HookContext, Result, TrainerBuilder};

use crate::toy::{Toy, batches, bits, quiet, toy};

/// A toy with a buffer that counts training steps.
struct Counting {
    toy: Toy,
    steps: Tensor,
    params: Params,
}

impl Counting {
    fn new(vb: VarBuilder<'_>, params: Params) -> Self {
        Self {
            steps: params::buffer(&vb.pp("count"), 1, "steps", 0.0).unwrap(),
            toy: Toy::new(8, vb).unwrap(),
            params,
        }
    }
}

impl ModuleT for Counting {
    fn forward_t(&self, images: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        if train {
            let next = (self.steps.detach() + 1.0)?;
            self.params.get("count.steps").unwrap().var.set(&next)?;
        }
        self.toy.forward_t(images, train)
    }
}

fn counting() -> (Counting, Params) {
    let params = Params::f32_cpu();
    (Counting::new(params.builder(), params.clone()), params)
}

type Bits = Vec<(String, Vec<u32>)>;

/// Records given numbers, and the bits of the model at the end of each epoch.
#[derive(Clone, Default)]
struct Course {
    scores: Vec<f64>,
    seen: Arc<Mutex<Vec<Bits>>>,
}

impl Hook for Course {
    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.seen.lock().unwrap().push(bits(context.params()));
        context.record("score", self.scores[context.epoch() as usize])
    }
}

/// Epochs trained, and whether the parameters and buffers at the end are those of epoch `best`.
fn check(stopping: EarlyStopping, scores: &[f64], epochs: usize, best: usize) {
    let course = Course {
        scores: scores.to_vec(),
        ..Course::default()
    };
    let (model, params) = counting();
    let mut trainer = quiet(model, params.clone())
        .hook(Box::new(course.clone()))
        .hook(Box::new(stopping))
        .epochs(scores.len() as u64)
        .build()
        .unwrap();
    let history = trainer.fit(&batches(2), None).unwrap();
    assert_eq!(history.epochs.len(), epochs, "{scores:?}");
    let seen = course.seen.lock().unwrap();
    assert_eq!(bits(&params), seen[best], "{scores:?}");
    assert_ne!(seen[0], seen[1]);
}

#[test]
fn it_stops_when_patience_runs_out_and_restores_the_best() {
    let higher = |patience| EarlyStopping::new("score", Better::Higher).patience(patience);
    let lower = |patience| EarlyStopping::new("score", Better::Lower).patience(patience);
    check(higher(2), &[1.0, 2.0, 1.5, 1.9, 9.0], 4, 1);
    check(lower(2), &[3.0, 2.0, 2.0, 2.5, 1.0], 4, 1);
    check(lower(1), &[1.0, 2.0, 0.0], 2, 0);
    check(higher(2), &[1.0, 0.0, 2.0, 0.0, 3.0, 2.0], 6, 4);
    check(higher(2).min_delta(0.5), &[1.0, 1.4, 1.5, 9.0], 3, 0);
    check(higher(1).restore_best(false), &[1.0, 0.5, 2.0], 2, 1);
}

#[test]
fn settings_and_metrics_without_sense_are_refused() {
    for (hook, part) in [
        (
            EarlyStopping::new("train/loss", Better::Lower).patience(0),
            "patience",
        ),
        (
            EarlyStopping::new("train/loss", Better::Lower).min_delta(-1.0),
            "min_delta",
        ),
        (
            EarlyStopping::new("evaluation/loss", Better::Lower),
            "evaluation source",
        ),
    ] {
        let (model, params) = toy();
        let mut trainer = quiet(model, params).hook(Box::new(hook)).build().unwrap();
        let message = trainer.fit(&batches(1), None).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

const SCORES: [f64; 7] = [1.0, 5.0, 2.0, 3.0, 4.0, 9.0, 9.0];

/// Stops after a step or at the end of an epoch, as a kill would, without the end of `fit` doing anything.
#[derive(Clone, Copy)]
enum Die {
    Step(u64),
    Epoch(u64),
}

impl Hook for Die {
    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        match *self {
            Self::Step(step) if step == context.step() => Err(tallow_train::Error::hook("killed")),
            _ => Ok(()),
        }
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        match *self {
            Self::Epoch(epoch) if epoch == context.epoch() => {
                Err(tallow_train::Error::hook("killed"))
            }
            _ => Ok(()),
        }
    }
}

fn settings(hooks: Vec<Box<dyn Hook>>) -> (TrainerBuilder<Counting>, Params) {
    let (model, params) = counting();
    let course = Course {
        scores: SCORES.to_vec(),
        ..Course::default()
    };
    let builder = quiet(model, params.clone())
        .epochs(7)
        .hook(Box::new(course));
    (
        hooks.into_iter().fold(builder, TrainerBuilder::hook),
        params,
    )
}

fn stopping() -> Box<dyn Hook> {
    Box::new(EarlyStopping::new("score", Better::Higher).patience(3))
}

#[test]
fn a_resumed_training_stops_where_an_uninterrupted_one_does_and_restores_the_same() {
    let (builder, params) = settings(vec![stopping()]);
    let mut trainer = builder.build().unwrap();
    trainer.fit(&batches(2), None).unwrap();
    assert_eq!(trainer.history().epochs.len(), 5);
    let whole = bits(&params);

    let steps = [2, 3, 4, 5, 7, 8, 9, 10].map(Die::Step);
    let epochs = [0, 1, 3, 4].map(Die::Epoch);
    for (number, kill) in steps.into_iter().chain(epochs).enumerate() {
        // The checkpoint before the judgement and after it.
        for checkpoint_first in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let checkpoints = || Box::new(CheckpointFolder::new(folder.path()).every_steps(1));
            let hooks = |die: Option<Die>| {
                let mut hooks: Vec<Box<dyn Hook>> = vec![checkpoints(), stopping()];
                if !checkpoint_first {
                    hooks.reverse();
                }
                // Between the two.
                if let Some(die) = die {
                    hooks.insert(1, Box::new(die));
                }
                hooks
            };
            let (builder, _) = settings(hooks(Some(kill)));
            builder.build().unwrap().fit(&batches(2), None).unwrap_err();
            let (builder, params) = settings(hooks(None));
            let mut trainer = builder.resume(folder.path()).build().unwrap();
            trainer.fit(&batches(2), None).unwrap();
            assert_eq!(trainer.history().epochs.len(), 5, "case {number}");
            assert_eq!(bits(&params), whole, "case {number}, {checkpoint_first}");
        }
    }
}

#[test]
fn a_training_that_had_stopped_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let checkpoint = || Box::new(Checkpointing::new(&path).every_epochs(1));
    let (builder, params) = settings(vec![stopping(), checkpoint()]);
    builder.build().unwrap().fit(&batches(2), None).unwrap();
    let whole = bits(&params);
    let (builder, params) = settings(vec![stopping(), checkpoint()]);
    let mut trainer = builder.resume(&path).build().unwrap();
    assert_ne!(bits(&params), whole, "the checkpoint is of the last epoch");
    trainer.fit(&batches(2), None).unwrap();
    assert_eq!((trainer.history().epochs.len(), bits(&params)), (5, whole));
}

#[test]
fn what_else_stops_a_training_leaves_its_parameters_to_go_on_with() {
    struct StopAt(u64);
    impl Hook for StopAt {
        fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
            if context.step() == self.0 {
                context.request_stop();
            }
            Ok(())
        }
    }
    let (builder, params) = settings(vec![stopping()]);
    builder.build().unwrap().fit(&batches(2), None).unwrap();
    let whole = bits(&params);
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = || Box::new(CheckpointFolder::new(folder.path()));
    let (builder, _) = settings(vec![stopping(), checkpoints(), Box::new(StopAt(7))]);
    builder.build().unwrap().fit(&batches(2), None).unwrap();
    let (builder, params) = settings(vec![stopping(), checkpoints()]);
    let mut trainer = builder.resume(folder.path()).build().unwrap();
    assert_eq!(trainer.steps(), 7);
    trainer.fit(&batches(2), None).unwrap();
    assert_eq!(bits(&params), whole);
}
