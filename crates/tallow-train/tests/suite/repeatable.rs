//! Same seed, same bits: on repeat, for any number of threads, and after a resume in the middle.

use std::path::Path;
use std::sync::LazyLock;

use candle_core::{DType, Device};
use tallow_data::{Augment, Loader, LoaderConfig, datasets};
use tallow_nn::SimpleCifar;
use tallow_tensor::{Params, rng};
use tallow_train::{
    AdamW, Checkpointing, CrossEntropyConfig, Hook, HookContext, LrSchedule, Optimizer, Sgd,
    TrainerBuilder,
};

use crate::toy::{bits, quiet};

const EPOCHS: u64 = 2;
const STEPS: u64 = 20;

/// Ten batches of eight real images, shuffled, mirrored and shifted at random, made ahead on another thread.
static SOURCE: LazyLock<Loader> = LazyLock::new(|| {
    let (train, _) = datasets::fashion_mnist_subset().unwrap();
    let config = LoaderConfig {
        augment: Augment::flip_and_crop(2),
        ..LoaderConfig::train(8)
    };
    train.take(80).loader(config).unwrap()
});

/// Convolutions, batch norm, activations, dropout and a linear layer: all that keeps state or draws at random.
fn net_of_seed(seed: u64) -> (SimpleCifar, Params) {
    let params = Params::new(seed, DType::F32, &Device::Cpu);
    let net = SimpleCifar::new(1, 10, params.builder()).unwrap();
    (net, params)
}

fn net() -> (SimpleCifar, Params) {
    net_of_seed(42)
}

fn settings(
    net: SimpleCifar,
    params: &Params,
    optimizer: impl Optimizer + 'static,
) -> TrainerBuilder<SimpleCifar> {
    quiet(net, params.clone())
        .optimizer(optimizer)
        .schedule_over_training(|steps| LrSchedule::one_cycle(steps - 3).with_warmup(3, 0.1))
        .loss(CrossEntropyConfig {
            label_smoothing: 0.1,
            ..Default::default()
        })
        .epochs(EPOCHS)
}

fn adam() -> AdamW {
    AdamW::new(0.01)
}

/// The bits after all steps of a training from scratch.
fn trained(seed: u64) -> Vec<(String, Vec<u32>)> {
    let (net, params) = net();
    let mut trainer = settings(net, &params, adam()).seed(seed).build().unwrap();
    trainer.fit(&*SOURCE, None).unwrap();
    assert_eq!(trainer.steps(), STEPS);
    bits(&params)
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_seed_others() {
    let first = trained(42);
    assert_eq!(first, trained(42));
    assert_ne!(first, trained(43), "dropout follows the seed");
    let (_, untrained) = net();
    assert_ne!(first, bits(&untrained));
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| trained(42))
    };
    let one = with_threads(1);
    assert_eq!(one, with_threads(2));
}

/// Writes a checkpoint and stops after a number of steps.
struct Interrupt {
    after: u64,
}

impl Hook for Interrupt {
    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> tallow_train::Result<()> {
        if context.step() == self.after {
            context.request_stop();
        }
        Ok(())
    }
}

/// The bits after a training that was stopped after some steps and resumed by a new program.
fn interrupted<O: Optimizer + 'static>(
    make: fn() -> O,
    after: u64,
    path: &Path,
) -> Vec<(String, Vec<u32>)> {
    let (model, params) = net();
    let hooks: [Box<dyn Hook>; 2] = [
        Box::new(Interrupt { after }),
        Box::new(Checkpointing::new(path)),
    ];
    let builder = settings(model, &params, make());
    let builder = hooks.into_iter().fold(builder, TrainerBuilder::hook);
    let mut trainer = builder.build().unwrap();
    trainer.fit(&*SOURCE, None).unwrap();
    assert_eq!(trainer.steps(), after);

    // The thread's own draws and the initial values are others this time.
    rng::manual_seed(1);
    rng::next_draw();
    let (model, params) = net_of_seed(7);
    let mut trainer = settings(model, &params, make())
        .resume(path)
        .build()
        .unwrap();
    trainer.fit(&*SOURCE, None).unwrap();
    assert_eq!(trainer.steps(), STEPS);
    bits(&params)
}

#[test]
fn a_resumed_training_gives_the_bits_of_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let whole = trained(42);
    for after in [7, 10, 13] {
        assert_eq!(
            interrupted(adam, after, &path),
            whole,
            "after {after} steps"
        );
    }
}

#[test]
fn sgd_with_momentum_is_resumed_to_the_bit_too() {
    let make = || {
        Sgd::new(0.05)
            .momentum(0.9)
            .nesterov(true)
            .weight_decay(1e-3)
    };
    let (model, params) = net();
    settings(model, &params, make())
        .build()
        .unwrap()
        .fit(&*SOURCE, None)
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    assert_eq!(interrupted(make, 13, &path), bits(&params));
}

#[test]
fn the_history_of_a_resumed_training_is_the_whole_one() {
    let numbers = |trainer: &tallow_train::Trainer<SimpleCifar>| {
        let epochs = trainer.history().epochs.iter();
        let numbers = epochs.map(|r| (r.epoch, r.steps, r.lr.to_bits(), r.train.clone()));
        numbers.collect::<Vec<_>>()
    };
    let (model, params) = net();
    let mut whole = settings(model, &params, adam()).build().unwrap();
    whole.fit(&*SOURCE, None).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let (model, params) = net();
    let interrupt = Box::new(Interrupt { after: 14 });
    let mut first = settings(model, &params, adam())
        .hook(interrupt)
        .build()
        .unwrap();
    first.fit(&*SOURCE, None).unwrap();
    first.save_checkpoint(&path).unwrap();
    let (model, params) = net();
    let mut second = settings(model, &params, adam())
        .resume(&path)
        .build()
        .unwrap();
    assert_eq!(second.history().epochs.len(), 1);
    second.fit(&*SOURCE, None).unwrap();
    assert_eq!(numbers(&second), numbers(&whole));
}
