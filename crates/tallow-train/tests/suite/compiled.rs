//! Training through compiled plans: the same course as on the tape, the same bits on repeat, and nothing compiled in
//! checkpoints.

use std::sync::{Arc, LazyLock, Mutex};

use candle_core::{DType, Device};
use tallow_compile::Options;
use tallow_data::{Augment, Loader, LoaderConfig, datasets};
use tallow_nn::SimpleCifar;
use tallow_tensor::Params;
use tallow_train::{
    AdamW, Checkpointing, CrossEntropyConfig, Hook, HookContext, LrSchedule, Trainer,
    TrainerBuilder,
};

use crate::toy::{batches, bits, quiet, toy};

/// Ten batches of eight real images, shuffled, mirrored and shifted at random.
static SOURCE: LazyLock<Loader> = LazyLock::new(|| {
    let (train, _) = datasets::fashion_mnist_subset().unwrap();
    let config = LoaderConfig {
        augment: Augment::flip_and_crop(2),
        ..LoaderConfig::train(8)
    };
    train.take(80).loader(config).unwrap()
});

fn settings(epochs: u64) -> (TrainerBuilder<SimpleCifar>, Params) {
    let params = Params::new(42, DType::F32, &Device::Cpu);
    let net = SimpleCifar::new(1, 10, params.builder()).unwrap();
    let builder = quiet(net, params.clone())
        .optimizer(AdamW::new(1e-3))
        .schedule_over_training(LrSchedule::one_cycle)
        .loss(CrossEntropyConfig {
            label_smoothing: 0.1,
            ..Default::default()
        })
        .epochs(epochs);
    (builder, params)
}

/// Notes the loss of every step.
#[derive(Clone, Default)]
struct Losses(Arc<Mutex<Vec<f64>>>);

impl Hook for Losses {
    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> tallow_train::Result<()> {
        self.0.lock().unwrap().extend(context.loss());
        Ok(())
    }
}

fn losses(options: Option<Options>) -> Vec<f64> {
    let losses = Losses::default();
    let (builder, _) = settings(10);
    let builder = builder.hook(Box::new(losses.clone()));
    let builder = match options {
        Some(options) => builder.compile(options),
        None => builder,
    };
    builder.build().unwrap().fit(&*SOURCE, None).unwrap();
    losses.0.lock().unwrap().clone()
}

#[test]
fn a_hundred_steps_follow_the_eager_losses() {
    let (eager, compiled) = (losses(None), losses(Some(Options::default())));
    assert_eq!((eager.len(), compiled.len()), (100, 100));
    for (step, (eager, compiled)) in eager.iter().zip(&compiled).enumerate() {
        let difference = (eager - compiled).abs();
        assert!(
            difference <= 1e-3 * eager.abs(),
            "step {step}: {eager} and {compiled}"
        );
    }
}

fn compiled() -> (TrainerBuilder<SimpleCifar>, Params) {
    let (builder, params) = settings(2);
    (builder.compile(Options::default()), params)
}

fn trained() -> Vec<(String, Vec<u32>)> {
    let (builder, params) = compiled();
    builder.build().unwrap().fit(&*SOURCE, None).unwrap();
    bits(&params)
}

#[test]
fn repeats_to_the_bit_for_any_number_of_threads() {
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(trained)
    };
    let one = with_threads(1);
    assert_eq!(one, with_threads(1));
    assert_eq!(one, with_threads(2));
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

#[test]
fn a_resumed_training_gives_the_bits_of_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let (builder, _) = compiled();
    let builder = builder
        .hook(Box::new(Interrupt(13)))
        .hook(Box::new(Checkpointing::new(&path)));
    builder.build().unwrap().fit(&*SOURCE, None).unwrap();
    let (builder, params) = compiled();
    builder
        .resume(&path)
        .build()
        .unwrap()
        .fit(&*SOURCE, None)
        .unwrap();
    assert_eq!(bits(&params), trained());
}

#[test]
fn evaluation_is_compiled_too_and_sees_the_trained_parameters() {
    let (_, test) = datasets::fashion_mnist_subset().unwrap();
    let test = test.take(60).loader(LoaderConfig::eval(20)).unwrap();
    let (builder, _) = compiled();
    let mut trainer: Trainer<SimpleCifar> = builder.build().unwrap();
    trainer.evaluate(&test).unwrap();
    trainer.fit(&*SOURCE, None).unwrap();
    let compiled = trainer.evaluate(&test).unwrap();
    let metrics = trainer.compile_metrics().unwrap();
    assert_eq!((metrics.recompiles, metrics.fallbacks), (0, 0));
    assert_eq!(metrics.cache_hits, 19);

    let params = trainer.params().clone();
    let mut eager = quiet(trainer.into_model(), params)
        .loss(CrossEntropyConfig {
            label_smoothing: 0.1,
            ..Default::default()
        })
        .build()
        .unwrap();
    let eager = eager.evaluate(&test).unwrap();
    assert!(
        (compiled.loss - eager.loss).abs() < 1e-4,
        "{} and {}",
        compiled.loss,
        eager.loss
    );
    assert_eq!(compiled.accuracy, eager.accuracy);
}

#[test]
fn a_model_that_breaks_the_graph_is_refused_or_trained_eagerly() {
    let data = batches(4);
    let (model, params) = toy();
    let mut trainer = quiet(model, params)
        .compile(Options::default())
        .build()
        .unwrap();
    let error = trainer.fit(&data, None).unwrap_err().to_string();
    assert!(error.contains("write instead"), "{error}");

    let (model, params) = toy();
    let options = Options::default().fullgraph(false);
    let mut trainer = quiet(model, params.clone())
        .compile(options)
        .build()
        .unwrap();
    trainer.fit(&data, None).unwrap();
    assert_eq!(trainer.compile_metrics().unwrap().fallbacks, 4);
    let (model, eager) = toy();
    quiet(model, eager.clone())
        .build()
        .unwrap()
        .fit(&data, None)
        .unwrap();
    assert_eq!(bits(&params), bits(&eager));
}
