//! The trainer: it learns, measures, respects freezes, leaves things alone in evaluation, and says what went wrong.

use crate::toy::{Toy, batch, batches, bits, quiet, toy};
use candle_core::{Device, Tensor, Var};
use candle_nn::ModuleT;
use tallow_data::{Batch, BatchSource, Batches};
use tallow_tensor::{Params, ops, rng, scope};
use tallow_train::{
    AdamW, BadValue, CrossEntropyConfig, Error, LrSchedule, Optimizer, ProgressDisplay, Sgd,
    metrics,
};

fn set(params: &Params, name: &str, value: f32) {
    let var = params.get(name).unwrap().var;
    let values = Tensor::full(value, var.shape(), var.device()).unwrap();
    var.set(&values).unwrap();
}

#[test]
fn training_lowers_the_loss_and_raises_the_accuracy() {
    let (model, params) = toy();
    let builder = quiet(model, params)
        .optimizer(AdamW::new(0.02))
        .epochs(30)
        .top_k(2);
    let mut trainer = builder.build().unwrap();
    let history = trainer.fit(&batches(10), Some(&batches(10))).unwrap();
    let (first, last) = (&history.epochs[0], history.last().unwrap());
    assert!(
        last.train.loss < 0.5 * first.train.loss,
        "{} to {}",
        first.train.loss,
        last.train.loss
    );
    let evaluation = last.evaluation.as_ref().unwrap();
    assert!(evaluation.accuracy > 0.9, "{evaluation}");
    let top = evaluation.top_k.unwrap();
    assert!(top.k == 2 && top.accuracy >= evaluation.accuracy);
    assert_eq!(
        history
            .best()
            .unwrap()
            .evaluation
            .as_ref()
            .map(|e| e.accuracy),
        {
            let accuracies = history
                .epochs
                .iter()
                .map(|r| r.evaluation.as_ref().unwrap().accuracy);
            accuracies.max_by(f64::total_cmp)
        }
    );
}

#[test]
fn an_evaluation_measures_what_the_model_gives() {
    let (model, params) = toy();
    let source = [batch(0, 5), batch(1, 2)];
    let mut trainer = quiet(model, params).build().unwrap();
    let measured = trainer.evaluate(&source[..].to_vec()).unwrap();

    let mut hits = 0.0;
    let mut loss = 0.0;
    for batch in &source {
        let logits = trainer.model().forward_t(&batch.images, false).unwrap();
        let samples = batch.len() as f64;
        hits += samples * metrics::accuracy(&logits, &batch.labels).unwrap();
        let mean = candle_nn::loss::cross_entropy(&logits, &batch.labels).unwrap();
        loss += samples * f64::from(mean.to_scalar::<f32>().unwrap());
    }
    assert_eq!(measured.samples, 7);
    assert!((measured.accuracy - hits / 7.0).abs() < 1e-12);
    assert!((measured.loss - loss / 7.0).abs() < 1e-6);
}

/// Says whether a tape is kept and in which mode the model runs.
struct Spy {
    toy: Toy,
    seen: std::cell::RefCell<Vec<(bool, bool)>>,
}

impl ModuleT for Spy {
    fn forward_t(&self, images: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let logits = ops::mul_scalar(&self.toy.forward_t(images, train)?, 1.0)?;
        self.seen.borrow_mut().push((train, logits.track_op()));
        rng::next_draw();
        Ok(logits)
    }
}

#[test]
fn an_evaluation_changes_nothing_and_keeps_no_tape() {
    let (toy, params) = toy();
    let seen = std::cell::RefCell::default();
    let mut trainer = quiet(Spy { toy, seen }, params.clone()).build().unwrap();
    trainer.fit(&batches(2), None).unwrap();
    let before = (
        bits(&params),
        trainer.steps(),
        trainer.history().clone(),
        rng::state(),
    );
    let moments = trainer.optimizer().state().deep_copy().unwrap();
    trainer.evaluate(&batches(3)).unwrap();
    let after = (
        bits(&params),
        trainer.steps(),
        trainer.history().clone(),
        rng::state(),
    );
    assert_eq!(before, after);
    for (name, state) in trainer.optimizer().state().parameters {
        let (a, b) = (
            &state.tensors["exp_avg"],
            &moments.parameters[&name].tensors["exp_avg"],
        );
        let difference = (a - b).unwrap().abs().unwrap().sum_all().unwrap();
        assert_eq!(difference.to_scalar::<f32>().unwrap(), 0.0, "{name}");
    }
    let seen = trainer.into_model().seen.into_inner();
    let (training, evaluation) = seen.split_at(2);
    assert_eq!(training, [(true, true); 2]);
    assert_eq!(evaluation, [(false, false); 3]);
}

#[test]
fn frozen_parameters_keep_their_bits() {
    let (model, params) = toy();
    assert_eq!(params.freeze("hidden"), 2);
    let before = bits(&params);
    let mut trainer = quiet(model, params.clone()).build().unwrap();
    trainer.fit(&batches(3), None).unwrap();
    for ((name, before), (_, after)) in before.iter().zip(bits(&params)) {
        assert_eq!(*before == after, name.starts_with("hidden"), "{name}");
    }
    let known = trainer.optimizer().state().parameters;
    assert!(
        known.keys().all(|name| name.starts_with("head")),
        "{:?}",
        known.keys()
    );
}

#[test]
fn the_schedule_and_loss_of_the_settings_are_used() {
    let doubled = |logits: &Tensor, labels: &Tensor| {
        ops::cross_entropy(logits, labels, &CrossEntropyConfig::default())? * 2.0
    };
    let first_loss = |double: bool| {
        let (model, params) = toy();
        let builder = quiet(model, params)
            .schedule_over_training(LrSchedule::cosine)
            .epochs(2);
        let builder = if double {
            builder.loss(doubled)
        } else {
            builder
        };
        let mut trainer = builder.optimizer(Sgd::new(1e-9)).build().unwrap();
        let history = trainer.fit(&batches(4), None).unwrap();
        let expected = LrSchedule::cosine(8).lr(1e-9, 7);
        assert_eq!(history.last().unwrap().lr, expected);
        history.epochs[0].train.loss
    };
    let (plain, double) = (first_loss(false), first_loss(true));
    assert!((double - 2.0 * plain).abs() < 1e-5, "{plain} and {double}");
}

#[test]
fn samples_with_the_ignored_label_do_not_count() {
    let images = batch(0, 6).images;
    let labels = Tensor::new(&[0u32, 1, 255, 2, 255, 0], &Device::Cpu).unwrap();
    let source = vec![Batch::new(images, labels).unwrap()];
    let (model, params) = toy();
    let loss = CrossEntropyConfig {
        ignore_index: Some(255),
        ..Default::default()
    };
    let mut trainer = quiet(model, params).loss(loss).build().unwrap();
    let history = trainer.fit(&source, Some(&source)).unwrap();
    assert_eq!(history.epochs[0].train.samples, 4);
    assert_eq!(history.epochs[0].evaluation.as_ref().unwrap().samples, 4);
}

/// Three operations with a hole for a bad value in the second.
struct Fragile {
    scale: Tensor,
    divisor: Tensor,
}

impl Fragile {
    fn new(params: &Params, divisor: f32) -> Self {
        Self {
            scale: params.builder().pp("stem").get(3, "scale").unwrap(),
            divisor: Tensor::full(divisor, 3, &Device::Cpu).unwrap(),
        }
    }
}

impl ModuleT for Fragile {
    fn forward_t(&self, images: &Tensor, _train: bool) -> candle_core::Result<Tensor> {
        let pixels = ops::slice(&ops::flatten(images, 1)?, 1, 0, 3)?;
        let _stem = scope::enter("stem");
        let scaled = ops::mul(&pixels, &self.scale)?;
        let _head = scope::enter("head.norm");
        ops::div(&scaled, &self.divisor)
    }
}

/// The cause of a loss that is not finite, and the whole message.
fn cause(error: Error) -> (BadValue, String) {
    let message = error.to_string();
    match error {
        Error::NonFinite { cause, .. } => (cause, message),
        other => panic!("{other}"),
    }
}

#[test]
fn a_loss_that_is_not_finite_names_the_parameter() {
    let (model, params) = toy();
    set(&params, "hidden.bias", f32::NAN);
    let before = bits(&params);
    let mut trainer = quiet(model, params.clone()).build().unwrap();
    let (cause, message) = cause(trainer.fit(&batches(2), None).unwrap_err());
    let name = "hidden.bias".to_string();
    assert_eq!(cause, BadValue::Parameter { name, count: 8 });
    assert!(
        message.contains("step 0 (epoch 0)") && message.contains("`hidden.bias`"),
        "{message}"
    );
    assert_eq!(bits(&params), before, "no update with it");
}

#[test]
fn a_loss_that_is_not_finite_names_the_module() {
    let params = Params::f32_cpu();
    let mut trainer = quiet(Fragile::new(&params, 0.0), params).build().unwrap();
    let expected = BadValue::Module {
        module: "head.norm".into(),
        operation: "div",
    };
    let (training, message) = cause(trainer.fit(&batches(1), None).unwrap_err());
    assert_eq!(training, expected);
    assert!(message.contains("div in module `head.norm`"), "{message}");
    let (evaluation, message) = cause(trainer.evaluate(&batches(1)).unwrap_err());
    assert_eq!(evaluation, expected);
    assert!(message.contains("evaluation batch 0"), "{message}");
}

#[test]
fn a_loss_that_is_not_finite_names_the_images() {
    let bad = batch(1, 6);
    let images = (bad.images * f64::NAN).unwrap();
    let source = vec![batch(0, 6), Batch::new(images, bad.labels).unwrap()];
    let (model, params) = toy();
    let mut trainer = quiet(model, params).build().unwrap();
    let (cause, message) = cause(trainer.fit(&source, None).unwrap_err());
    assert_eq!(cause, BadValue::Images { count: 96 });
    assert!(message.contains("step 1 (epoch 0)"), "{message}");
    assert_eq!(trainer.steps(), 1, "the good step counts");
}

#[test]
fn a_loss_function_that_gives_nan_is_named() {
    let (model, params) = toy();
    let nan = |logits: &Tensor, _: &Tensor| logits.sum_all()? * f64::NAN;
    let mut trainer = quiet(model, params).loss(nan).build().unwrap();
    let (cause, _) = cause(trainer.fit(&batches(1), None).unwrap_err());
    assert_eq!(cause, BadValue::Loss);
}

#[test]
fn a_nan_loss_leaves_the_earlier_checkpoint_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let (model, params) = toy();
    let mut trainer = quiet(model, params.clone())
        .epochs(2)
        .checkpoint(&path)
        .build()
        .unwrap();
    let bad = batch(0, 6);
    let nan = (&bad.images * f64::NAN).unwrap();
    /// Good in the first epoch.
    struct Spoiled([Batch; 2]);
    impl BatchSource for Spoiled {
        fn epoch(&self, epoch: u64) -> tallow_data::Result<Batches<'_>> {
            let batch = self.0[epoch as usize].clone();
            Ok(Box::new(std::iter::once(Ok(batch))))
        }
    }
    let source = Spoiled([batch(0, 6), Batch::new(nan, bad.labels).unwrap()]);
    assert!(matches!(
        trainer.fit(&source, None),
        Err(Error::NonFinite { .. })
    ));

    let (model, resumed) = toy();
    let trainer = quiet(model, resumed.clone()).resume(&path).build().unwrap();
    assert_eq!(trainer.history().epochs.len(), 1);
    assert_eq!(bits(&resumed), bits(&params), "the first epoch's");
}

#[test]
fn a_model_that_cuts_the_gradient_is_an_error() {
    struct Cut(Toy);
    impl ModuleT for Cut {
        fn forward_t(&self, images: &Tensor, train: bool) -> candle_core::Result<Tensor> {
            Ok(self.0.forward_t(images, train)?.detach())
        }
    }
    let (toy, params) = toy();
    let mut trainer = quiet(Cut(toy), params).build().unwrap();
    let error = trainer.fit(&batches(1), None).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NoGradient {
                step: 0,
                parameters: 4
            }
        ),
        "{error}"
    );
}

#[test]
fn a_source_without_batches_is_an_error() {
    let (model, params) = toy();
    let mut trainer = quiet(model, params).build().unwrap();
    let error = trainer.fit(&batches(0), None).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NoBatches {
                role: "training",
                epoch: 0
            }
        ),
        "{error}"
    );
    let error = trainer.evaluate(&batches(0)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NoBatches {
                role: "evaluation",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn an_error_of_the_data_comes_out_as_it_is() {
    struct Broken;
    impl BatchSource for Broken {
        fn epoch(&self, _: u64) -> tallow_data::Result<Batches<'_>> {
            let bad = Err(tallow_data::Error::custom("a torn page"));
            Ok(Box::new([Ok(batch(0, 4)), bad].into_iter()))
        }
    }
    let (model, params) = toy();
    let mut trainer = quiet(model, params).build().unwrap();
    let error = trainer.fit(&Broken, None).unwrap_err();
    assert!(matches!(error, Error::Data(_)));
    assert_eq!(error.to_string(), "a torn page");
    assert_eq!(trainer.steps(), 1);
}

#[test]
fn a_label_that_is_no_class_is_an_error() {
    let labels = Tensor::new(&[7u32; 6], &Device::Cpu).unwrap();
    let source = vec![Batch::new(batch(0, 6).images, labels).unwrap()];
    let (model, params) = toy();
    let mut trainer = quiet(model, params).build().unwrap();
    let message = trainer.fit(&source, None).unwrap_err().to_string();
    assert!(message.contains("class 7"), "{message}");
}

#[test]
fn settings_without_sense_are_refused_when_the_trainer_is_built() {
    type Settings = tallow_train::TrainerBuilder<Toy>;
    type Change = fn(Settings) -> Settings;
    let cases: [(Change, &str); 5] = [
        (|b| b.epochs(0), "number of epochs"),
        (|b| b.top_k(0), "k of top-k"),
        (|b| b.optimizer(AdamW::new(-1.0)), "learning rate of AdamW"),
        (|b| b.optimizer(Sgd::new(0.1).nesterov(true)), "Nesterov"),
        (|b| b.schedule(LrSchedule::cosine(0)), "cosine schedule"),
    ];
    for (change, part) in cases {
        let (model, params) = toy();
        let message = change(quiet(model, params))
            .build()
            .err()
            .unwrap()
            .to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_schedule_over_the_training_needs_a_source_with_a_length() {
    struct Endless;
    impl BatchSource for Endless {
        fn epoch(&self, _: u64) -> tallow_data::Result<Batches<'_>> {
            Ok(Box::new((0..).map(|index| Ok(batch(index, 4)))))
        }
    }
    let (model, params) = toy();
    let builder = quiet(model, params).schedule_over_training(LrSchedule::one_cycle);
    let message = builder
        .build()
        .unwrap()
        .fit(&Endless, None)
        .unwrap_err()
        .to_string();
    assert!(message.contains("knows its number of batches"), "{message}");
}

#[test]
fn every_way_of_showing_progress_trains_alike() {
    let trained = |display| {
        let (model, params) = toy();
        let builder = quiet(model, params.clone()).progress(display).epochs(2);
        builder
            .build()
            .unwrap()
            .fit(&batches(3), Some(&batches(1)))
            .unwrap();
        bits(&params)
    };
    let off = trained(ProgressDisplay::Off);
    for display in [
        ProgressDisplay::Auto,
        ProgressDisplay::Bar,
        ProgressDisplay::Lines,
    ] {
        assert_eq!(trained(display), off, "{display:?}");
    }
}

#[test]
fn an_optimizer_of_ones_own_trains() {
    struct Towards(f32);
    impl Optimizer for Towards {
        fn algorithm(&self) -> &str {
            "towards"
        }
        fn lr(&self) -> f64 {
            1.0
        }
        fn set_lr(&mut self, _: f64) {}
        fn update(&mut self, _: &str, parameter: &Var, _: &Tensor) -> tallow_train::Result<()> {
            let value = Tensor::full(self.0, parameter.shape(), parameter.device())?;
            Ok(parameter.set(&value)?)
        }
        fn state(&self) -> tallow_train::OptimizerState {
            tallow_train::OptimizerState::new(self.algorithm())
        }
        fn load_state(&mut self, state: &tallow_train::OptimizerState) -> tallow_train::Result<()> {
            state.expect(self.algorithm())
        }
    }
    let (model, params) = toy();
    let builder = quiet(model, params.clone()).optimizer(Towards(0.5));
    builder.build().unwrap().fit(&batches(1), None).unwrap();
    let half = 0.5f32.to_bits();
    assert!(
        bits(&params)
            .iter()
            .all(|(_, values)| values.iter().all(|&v| v == half))
    );
}
