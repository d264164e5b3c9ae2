//! When hooks are called, what they see, and what they can change.

use std::sync::{Arc, Mutex};

use crate::toy::{batches, bits, quiet, toy};
use candle_core::backprop::GradStore;
use tallow_train::{Error, Hook, HookContext, LrSchedule, Result, Sgd};

/// Writes down every call.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn write(&self, line: String) -> Result<()> {
        self.0.lock().unwrap().push(line);
        Ok(())
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn boxed(&self) -> Box<dyn Hook> {
        Box::new(self.clone())
    }
}

impl Hook for Diary {
    fn on_fit_begin(&mut self, _: &mut HookContext<'_>) -> Result<()> {
        self.write("fit begin".into())
    }
    fn on_fit_end(&mut self, c: &mut HookContext<'_>) -> Result<()> {
        self.write(format!("fit end, {} epochs", c.history().epochs.len()))
    }
    fn on_epoch_begin(&mut self, c: &mut HookContext<'_>) -> Result<()> {
        self.write(format!("epoch {} of {} begin", c.epoch(), c.epochs()))
    }
    fn on_epoch_end(&mut self, c: &mut HookContext<'_>) -> Result<()> {
        let record = c.history().last().unwrap();
        assert_eq!(record.epoch, c.epoch());
        assert_eq!(record.evaluation.as_ref(), c.evaluation());
        self.write(format!("epoch {} end, batch {}", c.epoch(), c.batch()))
    }
    fn on_step_begin(&mut self, c: &mut HookContext<'_>) -> Result<()> {
        self.write(format!("step {} begin", c.step()))
    }
    fn on_gradients(&mut self, c: &mut HookContext<'_>, gradients: &mut GradStore) -> Result<()> {
        let all = c
            .params()
            .trainable()
            .iter()
            .all(|(_, var)| gradients.get(var).is_some());
        self.write(format!("gradients of all: {all}"))
    }
    fn on_step_end(&mut self, c: &mut HookContext<'_>) -> Result<()> {
        assert!(c.loss().unwrap() > 0.0);
        assert_eq!(c.running().unwrap().samples, 6 * c.batch());
        self.write(format!(
            "step {} end, batch {} of {:?}",
            c.step(),
            c.batch(),
            c.batches()
        ))
    }
    fn on_evaluate_begin(&mut self, _: &mut HookContext<'_>) -> Result<()> {
        self.write("evaluate begin".into())
    }
    fn on_evaluate_end(&mut self, c: &mut HookContext<'_>) -> Result<()> {
        self.write(format!(
            "evaluate end, {} samples",
            c.evaluation().unwrap().samples
        ))
    }
}

#[test]
fn hooks_are_called_at_every_point_in_order() {
    let diary = Diary::default();
    let (model, params) = toy();
    let mut trainer = quiet(model, params)
        .hook(diary.boxed())
        .epochs(2)
        .build()
        .unwrap();
    trainer.fit(&batches(2), Some(&batches(3))).unwrap();
    let expected = [
        "fit begin",
        "epoch 0 of 2 begin",
        "step 0 begin",
        "gradients of all: true",
        "step 1 end, batch 1 of Some(2)",
        "step 1 begin",
        "gradients of all: true",
        "step 2 end, batch 2 of Some(2)",
        "evaluate begin",
        "evaluate end, 18 samples",
        "epoch 0 end, batch 2",
        "epoch 1 of 2 begin",
        "step 2 begin",
        "gradients of all: true",
        "step 3 end, batch 1 of Some(2)",
        "step 3 begin",
        "gradients of all: true",
        "step 4 end, batch 2 of Some(2)",
        "evaluate begin",
        "evaluate end, 18 samples",
        "epoch 1 end, batch 2",
        "fit end, 2 epochs",
    ];
    assert_eq!(diary.lines(), expected);
}

/// A hook out of closures for the points that the tests below need.
#[derive(Default)]
struct At {
    step_begin: Option<fn(&mut HookContext<'_>) -> Result<()>>,
    step_end: Option<fn(&mut HookContext<'_>) -> Result<()>>,
    epoch_end: Option<fn(&mut HookContext<'_>) -> Result<()>>,
    gradients: Option<fn(&mut HookContext<'_>, &mut GradStore) -> Result<()>>,
}

impl Hook for At {
    fn on_step_begin(&mut self, c: &mut HookContext<'_>) -> Result<()> {
        self.step_begin.map_or(Ok(()), |call| call(c))
    }
    fn on_step_end(&mut self, c: &mut HookContext<'_>) -> Result<()> {
        self.step_end.map_or(Ok(()), |call| call(c))
    }
    fn on_epoch_end(&mut self, c: &mut HookContext<'_>) -> Result<()> {
        self.epoch_end.map_or(Ok(()), |call| call(c))
    }
    fn on_gradients(&mut self, c: &mut HookContext<'_>, gradients: &mut GradStore) -> Result<()> {
        self.gradients.map_or(Ok(()), |call| call(c, gradients))
    }
}

#[test]
fn a_rate_set_at_the_beginning_of_a_step_holds_for_that_step() {
    let (model, params) = toy();
    let before = bits(&params);
    let zero = At {
        step_begin: Some(|c| {
            assert_eq!(c.lr(), 0.5, "the schedule's rate again");
            c.set_lr(0.0);
            Ok(())
        }),
        step_end: Some(|c| {
            assert_eq!((c.lr(), c.optimizer().lr()), (0.0, 0.0));
            Ok(())
        }),
        ..At::default()
    };
    let builder = quiet(model, params.clone())
        .optimizer(Sgd::new(0.5))
        .hook(Box::new(zero));
    builder.build().unwrap().fit(&batches(3), None).unwrap();
    assert_eq!(bits(&params), before, "steps of length 0");
}

#[test]
fn a_new_base_rate_is_scaled_by_the_schedule() {
    let tenth = At {
        epoch_end: Some(|c| {
            c.set_base_lr(c.base_lr() / 10.0);
            Ok(())
        }),
        ..At::default()
    };
    let (model, params) = toy();
    let mut trainer = quiet(model, params)
        .optimizer(Sgd::new(1.0))
        .schedule(LrSchedule::step(2, 0.5))
        .hook(Box::new(tenth))
        .epochs(3)
        .build()
        .unwrap();
    let history = trainer.fit(&batches(2), None).unwrap();
    let rates: Vec<f64> = history.epochs.iter().map(|record| record.lr).collect();
    assert_eq!(rates, [1.0, 0.1 * 0.5, 0.1 / 10.0 * 0.25]);
}

#[test]
fn a_stop_in_the_middle_of_an_epoch_ends_there_and_can_be_continued() {
    let diary = Diary::default();
    let stop = At {
        step_end: Some(|c| {
            if c.step() == 3 {
                c.request_stop();
            }
            Ok(())
        }),
        ..At::default()
    };
    let (model, params) = toy();
    let builder = quiet(model, params)
        .hook(diary.boxed())
        .hook(Box::new(stop));
    let mut trainer = builder.epochs(2).build().unwrap();
    let history = trainer.fit(&batches(2), None).unwrap();
    assert_eq!((history.epochs.len(), trainer.steps()), (1, 3));
    assert_eq!(diary.lines().last().unwrap(), "fit end, 1 epochs");

    let history = trainer.fit(&batches(2), None).unwrap();
    assert_eq!((history.epochs.len(), trainer.steps()), (2, 4));
    assert_eq!(
        history.last().unwrap().train.samples,
        12,
        "the whole of the epoch counts"
    );
}

#[test]
fn a_stop_in_the_last_step_of_an_epoch_leaves_the_epoch_whole() {
    let stop = At {
        step_end: Some(|c| {
            c.request_stop();
            Ok(())
        }),
        ..At::default()
    };
    let (model, params) = toy();
    let mut trainer = quiet(model, params)
        .hook(Box::new(stop))
        .epochs(5)
        .build()
        .unwrap();
    let history = trainer.fit(&batches(1), Some(&batches(1))).unwrap();
    assert_eq!(history.epochs.len(), 1);
    assert!(history.epochs[0].evaluation.is_some());
}

#[test]
fn recorded_numbers_stand_in_the_epochs_record() {
    let record = At {
        step_end: Some(|c| c.record("last step", c.step() as f64)),
        epoch_end: Some(|c| c.record("end of epoch", c.epoch() as f64)),
        ..At::default()
    };
    let (model, params) = toy();
    let mut trainer = quiet(model, params)
        .hook(Box::new(record))
        .epochs(2)
        .build()
        .unwrap();
    let history = trainer.fit(&batches(3), None).unwrap();
    for (epoch, last) in [(0, 3.0), (1, 6.0)] {
        let recorded = &history.epochs[epoch].recorded;
        assert_eq!(recorded["last step"], last);
        assert_eq!(recorded["end of epoch"], epoch as f64);
        assert_eq!(recorded.len(), 2);
    }
}

#[test]
fn a_recorded_nan_is_refused() {
    let record = At {
        step_end: Some(|c| c.record("ratio", f64::NAN)),
        ..At::default()
    };
    let (model, params) = toy();
    let mut trainer = quiet(model, params).hook(Box::new(record)).build().unwrap();
    let message = trainer.fit(&batches(1), None).unwrap_err().to_string();
    assert!(message.contains("ratio = NaN"), "{message}");
}

#[test]
fn gradients_can_be_changed_before_the_update() {
    let zero = At {
        gradients: Some(|c, gradients| {
            for (_, var) in c.params().trainable() {
                gradients.insert(&var, var.zeros_like()?);
            }
            Ok(())
        }),
        ..At::default()
    };
    let (model, params) = toy();
    let before = bits(&params);
    let builder = quiet(model, params.clone())
        .optimizer(Sgd::new(0.5))
        .hook(Box::new(zero));
    builder.build().unwrap().fit(&batches(2), None).unwrap();
    assert_eq!(bits(&params), before);
}

#[test]
fn an_error_in_a_hook_ends_the_training_and_comes_out() {
    let diary = Diary::default();
    let fail = At {
        step_end: Some(|_| Err(Error::hook("the disk is full"))),
        ..At::default()
    };
    let (model, params) = toy();
    let builder = quiet(model, params)
        .hook(Box::new(fail))
        .hook(diary.boxed());
    let error = builder.build().unwrap().fit(&batches(2), None).unwrap_err();
    assert!(matches!(error, Error::Hook(_)));
    assert_eq!(error.to_string(), "the disk is full");
    assert_eq!(diary.lines().last().unwrap(), "gradients of all: true");
}
