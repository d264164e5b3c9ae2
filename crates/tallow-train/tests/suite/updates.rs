//! What surrounds an update in a training: accumulation, clipping, averaged weights, mixed labels, frozen norms; eager and
//! compiled, and resumed to the bit.

use std::sync::{Arc, Mutex};

use candle_core::{Device, ModuleT, Result, Tensor};
use candle_nn::VarBuilder;
use tallow_compile::Options;
use tallow_data::transform::MixUp;
use tallow_data::{Batch, ImageDataset, LoaderConfig};
use tallow_nn::{BatchNorm2d, BatchNormConfig, Dropout, Linear};
use tallow_tensor::{Params, ops};
use tallow_train::{
    AdamW, CrossEntropyConfig, EmaConfig, GradientClip, Hook, HookContext, LrSchedule, Muon,
    ParamGroups, ReduceOnPlateau, Sgd, TrainerBuilder,
};

use crate::toy::{batch, batches, bits, quiet};

/// Norm (if wanted), dropout (if wanted), two linear layers; can be captured.
pub(crate) struct Net {
    norm: Option<BatchNorm2d>,
    dropout: Dropout,
    hidden: Linear,
    head: Linear,
}

impl Net {
    fn new(norm: bool, dropout: f64, vb: VarBuilder<'_>) -> Result<Self> {
        let norm = norm.then(|| BatchNorm2d::new(1, BatchNormConfig::default(), vb.pp("stem.bn")));
        Ok(Self {
            norm: norm.transpose()?,
            dropout: Dropout::new(dropout)?,
            hidden: Linear::new(16, 8, vb.pp("hidden"))?,
            head: Linear::new(8, 3, vb.pp("head"))?,
        })
    }
}

impl ModuleT for Net {
    fn forward_t(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        let xs = match &self.norm {
            Some(norm) => norm.forward_t(images, train)?,
            None => images.clone(),
        };
        let xs = self.dropout.forward_t(&ops::flatten(&xs, 1)?, train)?;
        let hidden = ops::relu(&self.hidden.forward_t(&xs, train)?)?;
        self.head.forward_t(&hidden, train)
    }
}

pub(crate) fn settings(norm: bool, dropout: f64, compiled: bool) -> (TrainerBuilder<Net>, Params) {
    let params = Params::f32_cpu();
    let net = Net::new(norm, dropout, params.builder()).unwrap();
    let builder = quiet(net, params.clone());
    match compiled {
        true => (builder.compile(Options::default()), params),
        false => (builder, params),
    }
}

fn fit(builder: TrainerBuilder<Net>, data: &[Batch]) {
    builder.build().unwrap().fit(&data.to_vec(), None).unwrap();
}

fn distance(a: &Params, b: &Params) -> f32 {
    let pairs = a.iter().zip(b.iter());
    let distances = pairs.map(|(a, b)| {
        let difference = (a.var.as_tensor() - b.var.as_tensor())
            .unwrap()
            .abs()
            .unwrap();
        difference.max_all().unwrap().to_scalar::<f32>().unwrap()
    });
    distances.fold(0.0, f32::max)
}

fn joined(batches: &[Batch]) -> Batch {
    let cat = |of: fn(&Batch) -> &Tensor| {
        Tensor::cat(&batches.iter().map(of).collect::<Vec<_>>(), 0).unwrap()
    };
    Batch::new(cat(|b| &b.images), cat(|b| &b.labels)).unwrap()
}

#[test]
fn accumulated_batches_make_the_steps_of_large_ones() {
    // The last group of the epoch has one batch, and a batch in the middle is smaller than the others.
    let mut small = batches(7);
    small[2] = batch(2, 3);
    let large: Vec<Batch> = small.chunks(3).map(joined).collect();
    for compiled in [false, true] {
        let sgd = || Sgd::new(0.2).momentum(0.9);
        let (builder, ours) = settings(false, 0.0, compiled);
        let mut trainer = builder
            .optimizer(sgd())
            .epochs(2)
            .accumulate(3)
            .build()
            .unwrap();
        let history = trainer.fit(&small, None).unwrap();
        assert_eq!(trainer.steps(), 6);
        let (builder, expected) = settings(false, 0.0, compiled);
        let mut trainer = builder.optimizer(sgd()).epochs(2).build().unwrap();
        let of_large = trainer.fit(&large, None).unwrap();
        let distance = distance(&ours, &expected);
        assert!(distance < 1e-5, "compiled {compiled}: {distance}");
        let losses = [&history, &of_large].map(|history| history.epochs[1].train.loss);
        assert!((losses[0] - losses[1]).abs() < 1e-5, "{losses:?}");
    }
}

#[test]
fn schedules_over_the_training_count_steps_not_batches() {
    let seen = Arc::new(Mutex::new(0));
    let (builder, _) = settings(false, 0.0, false);
    let noted = Arc::clone(&seen);
    let builder = builder
        .accumulate(3)
        .epochs(4)
        .schedule_over_training(move |steps| {
            *noted.lock().unwrap() = steps;
            LrSchedule::cosine(steps)
        });
    fit(builder, &batches(7));
    assert_eq!(*seen.lock().unwrap(), 12);
}

/// All settings at once.
pub(crate) fn everything(compiled: bool) -> (TrainerBuilder<Net>, Params) {
    let (builder, params) = settings(true, 0.2, compiled);
    let groups = ParamGroups::new()
        .layer_decay(0.5, &["stem", "hidden", "head"])
        .no_decay_on_norms_and_biases();
    let builder = builder
        .optimizer(Muon::new(0.02).groups(groups))
        .schedule(LrSchedule::exponential(0.95).with_warmup(2, 0.1))
        .reduce_on_plateau(
            ReduceOnPlateau::on_accuracy()
                .with_patience(0)
                .with_factor(0.7),
        )
        .ema(EmaConfig::new(0.9).with_warmup())
        .clip(GradientClip::norm(0.5))
        .accumulate(2)
        .epochs(4);
    (builder, params)
}

/// Stops after a number of steps.
struct Interrupt(u64);

impl Hook for Interrupt {
    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> tallow_train::Result<()> {
        if context.step() == self.0 {
            context.request_stop();
        }
        Ok(())
    }
}

pub(crate) fn average_bits(trainer: &tallow_train::Trainer<Net>) -> Vec<Vec<u32>> {
    let tensors = trainer.ema().unwrap().tensors();
    let values = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let of = tensors
        .values()
        .map(|t| values(t).into_iter().map(f32::to_bits).collect());
    of.collect()
}

#[test]
fn a_resume_with_everything_on_gives_the_bits_of_an_uninterrupted_training() {
    let (data, evaluation) = (batches(5), batches(2));
    for compiled in [false, true] {
        let (builder, expected) = everything(compiled);
        let mut whole = builder.build().unwrap();
        let history = whole.fit(&data, Some(&evaluation)).unwrap();

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint.safetensors");
        let (builder, _) = everything(compiled);
        let mut first = builder.hook(Box::new(Interrupt(7))).build().unwrap();
        first.fit(&data, Some(&evaluation)).unwrap();
        first.save_checkpoint(&path).unwrap();
        // Settings other than the checkpoint's, which holds.
        let (builder, params) = settings(true, 0.2, compiled);
        let builder = builder.optimizer(Muon::new(0.5)).epochs(4).resume(&path);
        let mut second = builder.build().unwrap();
        let resumed = second.fit(&data, Some(&evaluation)).unwrap();
        assert_eq!(bits(&params), bits(&expected), "compiled {compiled}");
        assert_eq!(average_bits(&second), average_bits(&whole));
        for (ours, theirs) in resumed.epochs.iter().zip(&history.epochs) {
            assert_eq!((ours.lr, &ours.evaluation), (theirs.lr, &theirs.evaluation));
        }
    }
}

#[test]
fn clipping_bounds_the_step_and_tells_the_norm() {
    #[derive(Clone, Default)]
    struct Norms(Arc<Mutex<Vec<f64>>>);
    impl Hook for Norms {
        fn on_step_end(&mut self, context: &mut HookContext<'_>) -> tallow_train::Result<()> {
            self.0.lock().unwrap().extend(context.gradient_norm());
            Ok(())
        }
    }
    for compiled in [false, true] {
        let (builder, params) = settings(false, 0.0, compiled);
        let before = params.to_tensors().unwrap();
        let norms = Norms::default();
        let builder = builder
            .optimizer(Sgd::new(1.0))
            .clip(GradientClip::norm(0.01))
            .hook(Box::new(norms.clone()));
        fit(builder, &batches(1));
        assert!(norms.0.lock().unwrap()[0] > 0.01);
        let squares = params.iter().map(|entry| {
            let moved = (entry.var.as_tensor() - &before[&entry.name]).unwrap();
            moved
                .sqr()
                .unwrap()
                .sum_all()
                .unwrap()
                .to_scalar::<f32>()
                .unwrap()
        });
        let length = squares.sum::<f32>().sqrt();
        assert!((length - 0.01).abs() < 1e-4, "{length}");
    }
}

#[test]
fn evaluations_use_the_averaged_weights_and_put_the_others_back() {
    let (data, evaluation) = (batches(6), batches(2));
    for compiled in [false, true] {
        let with_ema = |evaluate| {
            let (builder, params) = settings(true, 0.0, compiled);
            let config = EmaConfig {
                evaluate,
                ..EmaConfig::new(0.8)
            };
            let mut trainer = builder
                .optimizer(AdamW::new(0.05))
                .ema(config)
                .build()
                .unwrap();
            trainer.fit(&data, Some(&evaluation)).unwrap();
            (trainer, params)
        };
        let ((mut averaged, params), (mut plain, same)) = (with_ema(true), with_ema(false));
        assert_eq!(bits(&params), bits(&same), "averaging changes no training");
        let weights = bits(&params);
        let of_average = averaged.evaluate(&evaluation).unwrap();
        assert_eq!(bits(&params), weights);
        assert_ne!(of_average.loss, plain.evaluate(&evaluation).unwrap().loss);
        plain.swap_ema().unwrap();
        assert_eq!(of_average, plain.evaluate(&evaluation).unwrap());
        plain.swap_ema().unwrap();
        assert_eq!(bits(&same), weights);
    }
}

fn pair(labels: &[u32], lambda: &[f32]) -> (Tensor, Tensor) {
    let labels = Tensor::new(labels, &Device::Cpu).unwrap();
    (labels, Tensor::new(lambda, &Device::Cpu).unwrap())
}

#[test]
fn mixed_labels_weigh_two_losses() {
    let base = batch(0, 4);
    let (second, lambda) = pair(&[0, 1, 2, 0], &[0.7, 0.7, 0.7, 0.7]);
    let mixed = base.clone().with_pair(second.clone(), lambda).unwrap();
    let smoothing = || CrossEntropyConfig {
        label_smoothing: 0.1,
        ..Default::default()
    };
    let loss_of = |builder: TrainerBuilder<Net>, batch: &Batch| {
        let mut trainer = builder.loss(smoothing()).build().unwrap();
        let history = trainer.fit(&vec![batch.clone()], None).unwrap();
        history.epochs[0].train.loss
    };
    let other = Batch::new(base.images.clone(), second).unwrap();
    let [first, second] = [&base, &other].map(|b| loss_of(settings(false, 0.0, false).0, b));
    let expected = 0.7 * first + 0.3 * second;
    for compiled in [false, true] {
        let loss = loss_of(settings(false, 0.0, compiled).0, &mixed);
        assert!(
            (loss - expected).abs() < 1e-6,
            "compiled {compiled}: {loss} and {expected}"
        );
    }
}

#[test]
fn mixed_and_soft_labels_train_alike_eager_and_compiled() {
    let (second, lambda) = pair(&[0, 1, 2, 0, 1, 2], &[0.9, 0.6, 0.5, 1.0, 0.8, 0.7]);
    let pairs: Vec<Batch> = batches(4)
        .into_iter()
        .map(|b| b.with_pair(second.clone(), lambda.clone()).unwrap())
        .collect();
    let soft: Vec<Batch> = batches(4)
        .into_iter()
        .map(|b| {
            let first = b.labels.to_vec1::<u32>().unwrap();
            let other = second.to_vec1::<u32>().unwrap();
            let share = lambda.to_vec1::<f32>().unwrap();
            let mut rows = vec![0f32; 18];
            for i in 0..6 {
                rows[i * 3 + first[i] as usize] += share[i];
                rows[i * 3 + other[i] as usize] += 1.0 - share[i];
            }
            let rows = Tensor::from_vec(rows, (6, 3), &Device::Cpu).unwrap();
            Batch::soft(b.images, rows).unwrap()
        })
        .collect();
    let train = |data: &[Batch], compiled| {
        let (builder, params) = settings(true, 0.0, compiled);
        fit(builder.optimizer(Sgd::new(0.1)).epochs(2), data);
        params
    };
    let eager = train(&pairs, false);
    assert_eq!(bits(&eager), bits(&train(&soft, false)));
    let compiled = train(&pairs, true);
    assert_eq!(bits(&compiled), bits(&train(&soft, true)));
    assert!(distance(&eager, &compiled) < 1e-5);
}

/// A loader that mixes trains as batches do that were mixed one by one, also from the middle of an epoch on.
#[test]
fn a_loader_that_mixes_trains_as_mixed_batches_do() {
    let pixels = (0..18 * 16).map(|i| (i * 37 % 251) as u8).collect();
    let labels = (0..18).map(|i| i % 3).collect();
    let data = ImageDataset::new(pixels, [1, 4, 4], labels, ["a", "b", "c"]).unwrap();
    let plain = || data.loader(LoaderConfig::train(6)).unwrap();
    let mixup = MixUp {
        alpha: 0.8,
        seed: 42,
    };
    let by_hand: Vec<Batch> = plain()
        .batches(0)
        .unwrap()
        .zip(0..)
        .map(|(batch, number)| mixup.mix(batch.unwrap(), 0, number).unwrap())
        .collect();
    for compiled in [false, true] {
        let train = |source: &dyn Fn(TrainerBuilder<Net>)| {
            let (builder, params) = settings(true, 0.0, compiled);
            source(builder.optimizer(Sgd::new(0.1)));
            bits(&params)
        };
        let expected = train(&|builder| fit(builder, &by_hand));
        let mixed = plain().mixup(0.8).unwrap();
        let fitted = train(&|builder| {
            builder.build().unwrap().fit(&mixed, None).unwrap();
        });
        assert_eq!(fitted, expected, "compiled {compiled}");
        let unmixed = train(&|builder| {
            builder.build().unwrap().fit(&plain(), None).unwrap();
        });
        assert_ne!(fitted, unmixed);
    }
}

#[test]
fn mixed_batches_without_sense_are_refused() {
    let labels = Tensor::new(&[0u32, 9], &Device::Cpu).unwrap();
    let half = Tensor::new(&[0.5f32, 0.5], &Device::Cpu).unwrap();
    let wrong = batch(0, 2).with_pair(labels.clone(), half.affine(3.0, 0.0).unwrap());
    assert!(wrong.unwrap_err().to_string().contains("lambda"));
    assert!(batch(0, 3).with_pair(labels.clone(), half.clone()).is_err());
    assert!(Batch::soft(batch(0, 2).images, half.clone()).is_err());
    let unknown = batch(0, 2).with_pair(labels, half).unwrap();
    let (builder, _) = settings(false, 0.0, false);
    let error = builder
        .build()
        .unwrap()
        .fit(&vec![unknown], None)
        .unwrap_err();
    assert!(
        error.to_string().contains("from 0 to 2, found 9"),
        "{error}"
    );
}

fn values(params: &Params, name: &str) -> Vec<f32> {
    params.get(name).unwrap().var.to_vec1::<f32>().unwrap()
}

#[test]
fn a_frozen_batch_norm_keeps_and_uses_its_running_statistics() {
    const NAMES: [&str; 4] = [
        "stem.bn.weight",
        "stem.bn.bias",
        "stem.bn.running_mean",
        "stem.bn.running_var",
    ];
    let mut ends = Vec::new();
    for compiled in [false, true] {
        let (builder, params) = settings(true, 0.0, compiled);
        let mut trainer = builder.optimizer(Sgd::new(0.1)).epochs(1).build().unwrap();
        let model_params = trainer.params().clone();
        trainer.fit(&batches(3), None).unwrap();
        let moved = NAMES.map(|name| values(&params, name));
        assert_ne!(moved[2], [0.0], "an unfrozen norm moves its statistics");

        assert_eq!(model_params.freeze_batch_norm("stem"), 1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("frozen.safetensors");
        trainer.save_checkpoint(&path).unwrap();
        let (builder, params) = settings(true, 0.0, compiled);
        let mut trainer = builder
            .epochs(3)
            .optimizer(Sgd::new(0.1))
            .resume(&path)
            .build()
            .unwrap();
        // What training computes is what evaluation computes.
        let images = batch(0, 6).images;
        let outputs = [true, false].map(|train| {
            let outputs = trainer.model().forward_t(&images, train).unwrap();
            outputs.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        });
        assert_eq!(outputs[0], outputs[1]);
        let head = values(&params, "head.bias");
        trainer.fit(&batches(3), None).unwrap();
        assert_eq!(
            NAMES.map(|name| values(&params, name)),
            moved,
            "compiled {compiled}"
        );
        assert_ne!(values(&params, "head.bias"), head, "the rest learns");

        // Freed again, in the same trainer.
        ends.push(values(&params, "head.bias"));
        assert_eq!(params.unfreeze_batch_norm(""), 1);
        let again = trainer.model().forward_t(&images, true).unwrap();
        assert_ne!(
            again.flatten_all().unwrap().to_vec1::<f32>().unwrap(),
            outputs[1]
        );
    }
    let close = ends[0]
        .iter()
        .zip(&ends[1])
        .all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(close, "eager and compiled differ");
}
