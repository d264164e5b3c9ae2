//! Same seed, same bits: on repeat, for any number of threads, and after a resume in the middle.

use std::path::Path;

use crate::toy::{CLASSES, batches, bits, quiet};
use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module, ModuleT, VarBuilder};
use tallow_data::Batch;
use tallow_tensor::rng::{self, Purpose, Stream};
use tallow_tensor::{Params, ops};
use tallow_train::{
    AdamW, Checkpointing, CrossEntropyConfig, Hook, HookContext, LrSchedule, Optimizer, Sgd,
    TrainerBuilder,
};

const EPOCHS: u64 = 2;
const BATCHES: usize = 10;
const STEPS: u64 = EPOCHS * BATCHES as u64;

/// Convolution, batch norm, activation, dropout and a linear layer: all that keeps state or draws at random.
struct Net {
    conv: Tensor,
    norm: [Tensor; 4],
    head: Linear,
}

impl Net {
    fn new(vb: VarBuilder<'_>) -> Result<Self> {
        let norm = vb.pp("norm");
        let buffer = |name, value| tallow_tensor::params::buffer(&norm, 4, name, value);
        Ok(Self {
            conv: vb.get_with_hints(
                (4, 1, 3, 3),
                "conv.weight",
                candle_nn::init::DEFAULT_KAIMING_NORMAL,
            )?,
            norm: [
                norm.get_with_hints(4, "weight", candle_nn::Init::Const(1.0))?,
                norm.get_with_hints(4, "bias", candle_nn::Init::Const(0.0))?,
                buffer("running_mean", 0.0)?,
                buffer("running_var", 1.0)?,
            ],
            head: candle_nn::linear(4 * 4 * 4, CLASSES, vb.pp("head"))?,
        })
    }
}

impl ModuleT for Net {
    fn forward_t(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        let config = ops::Conv2dConfig {
            padding: [1, 1],
            ..Default::default()
        };
        let [weight, bias, running_mean, running_var] = &self.norm;
        let norm = ops::BatchNormArgs {
            weight,
            bias,
            running_mean,
            running_var,
            eps: 1e-5,
            momentum: 0.1,
        };
        let features = ops::conv2d(images, &self.conv, None, &config)?;
        let features = ops::relu(&ops::batch_norm(&features, &norm, train)?)?;
        let features = ops::flatten(&features, 1)?;
        self.head.forward(&dropout(&features, train)?)
    }
}

/// Half of the values, by the thread's draws.
fn dropout(xs: &Tensor, train: bool) -> Result<Tensor> {
    if !train {
        return Ok(xs.clone());
    }
    let mut stream = Stream::new(rng::draw_key(Purpose::Dropout, rng::next_draw()));
    let mask: Vec<f32> = (0..xs.elem_count())
        .map(|_| if stream.chance(0.5) { 2.0 } else { 0.0 })
        .collect();
    ops::mul(xs, &Tensor::from_vec(mask, xs.dims(), xs.device())?)
}

fn net() -> (Net, Params) {
    let params = Params::f32_cpu();
    let net = Net::new(params.builder()).unwrap();
    (net, params)
}

fn settings(net: Net, params: &Params, optimizer: impl Optimizer + 'static) -> TrainerBuilder<Net> {
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
    trainer.fit(&batches(BATCHES), None).unwrap();
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
    assert_eq!(one, with_threads(3));
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
    source: &[Batch],
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
    trainer.fit(&source, None).unwrap();
    assert_eq!(trainer.steps(), after);

    // The thread's own draws and the initial values are others this time.
    rng::manual_seed(1);
    rng::next_draw();
    let params = Params::new(7, candle_core::DType::F32, &candle_core::Device::Cpu);
    let model = Net::new(params.builder()).unwrap();
    let mut trainer = settings(model, &params, make())
        .resume(path)
        .build()
        .unwrap();
    trainer.fit(&source, None).unwrap();
    assert_eq!(trainer.steps(), STEPS);
    bits(&params)
}

#[test]
fn a_resumed_training_gives_the_bits_of_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let source = batches(BATCHES);
    let whole = trained(42);
    for after in [1, 7, 10, 13, STEPS] {
        assert_eq!(
            interrupted(adam, after, &source, &path),
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
    let source = batches(BATCHES);
    settings(model, &params, make())
        .build()
        .unwrap()
        .fit(&source, None)
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    assert_eq!(interrupted(make, 13, &source, &path), bits(&params));
}

#[test]
fn the_history_of_a_resumed_training_is_the_whole_one() {
    let numbers = |trainer: &tallow_train::Trainer<Net>| {
        let epochs = trainer.history().epochs.iter();
        let numbers = epochs.map(|r| (r.epoch, r.steps, r.lr.to_bits(), r.train.clone()));
        numbers.collect::<Vec<_>>()
    };
    let source = batches(BATCHES);
    let (model, params) = net();
    let mut whole = settings(model, &params, adam()).build().unwrap();
    whole.fit(&source, None).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let (model, params) = net();
    let interrupt = Box::new(Interrupt { after: 14 });
    let mut first = settings(model, &params, adam())
        .hook(interrupt)
        .build()
        .unwrap();
    first.fit(&source, None).unwrap();
    first.save_checkpoint(&path).unwrap();
    let (model, params) = net();
    let mut second = settings(model, &params, adam())
        .resume(&path)
        .build()
        .unwrap();
    assert_eq!(second.history().epochs.len(), 1);
    second.fit(&source, None).unwrap();
    assert_eq!(numbers(&second), numbers(&whole));
}
