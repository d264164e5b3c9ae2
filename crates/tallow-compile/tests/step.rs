//! Compiled training steps beside candle's tape: losses, gradients and running statistics of real models.

mod common;

use candle_core::{DType, Device, Tensor};
use candle_nn::ModuleT;
use common::{Eager, batch, close, eager_step};
use tallow_compile::{Options, StepCompiler};
use tallow_nn::{
    Activation, ConvNormAct, ConvNormActConfig, Gru, LeNet5, Linear, Lstm, RecurrentConfig, ResNet,
    SimpleCifar, Stem, VisionTransformer, VisionTransformerConfig,
};
use tallow_tensor::ops::{self, CrossEntropyConfig};
use tallow_tensor::{Params, rng};

/// One step of a model, compiled and eager from the same parameters, and the largest relative differences allowed: of outputs, and of gradients.
fn compare<M: ModuleT>(
    make: impl Fn(&Params) -> candle_core::Result<M>,
    (images, labels): (Tensor, Tensor),
    options: Options,
    [tolerance, of_gradients]: [f64; 2],
) {
    let params = Params::f32_cpu();
    let model = make(&params).unwrap();
    let config = CrossEntropyConfig {
        label_smoothing: 0.1,
        ..Default::default()
    };
    let forward = |images: &Tensor, labels: &Tensor| {
        let outputs = model.forward_t(images, true)?;
        Ok((ops::cross_entropy(&outputs, labels, &config)?, outputs))
    };
    let before = params.to_tensors().unwrap();
    rng::begin_step(7, 3);
    let Eager {
        loss,
        outputs,
        gradients,
    } = eager_step(&images, &labels, &forward);
    let buffers = params.to_tensors().unwrap();
    params
        .load_tensors(&before, tallow_tensor::params::Strict::Yes)
        .unwrap();

    let mut compiler = StepCompiler::new(options).unwrap();
    for _ in 0..2 {
        params
            .load_tensors(&before, tallow_tensor::params::Strict::Yes)
            .unwrap();
        rng::begin_step(7, 3);
        let step = compiler.run(&params, &images, &labels, &forward).unwrap();
        assert!(
            (f64::from(step.loss) - loss).abs() <= tolerance * loss.abs(),
            "{} {loss}",
            step.loss
        );
        close("outputs", &step.outputs, &outputs, tolerance);
        for (name, var) in params.trainable() {
            let expected = gradients.get(&var).unwrap();
            let found = step
                .gradients
                .get(&var)
                .unwrap_or_else(|| panic!("{name} has no gradient"));
            close(&name, found, expected, of_gradients);
        }
        for (name, after) in params.to_tensors().unwrap() {
            close(&name, &after, &buffers[&name], 1e-5);
        }
    }
    assert_eq!(compiler.metrics().cache_hits, 1);
    assert_eq!(compiler.metrics().fallbacks, 0);
}

fn direct() -> Options {
    Options::default().winograd(false)
}

#[test]
fn simple_cifar() {
    let data = || batch([8, 3, 32, 32], 10);
    compare(
        |p| SimpleCifar::new(3, 10, p.builder()),
        data(),
        direct(),
        [1e-5; 2],
    );
}

#[test]
fn lenet() {
    compare(
        |p| LeNet5::new(10, p.builder()),
        batch([4, 1, 28, 28], 10),
        direct(),
        [1e-5; 2],
    );
}

#[test]
fn resnet18() {
    let make = |p: &Params| ResNet::resnet18(10, Stem::Cifar, p.builder());
    compare(make, batch([4, 3, 32, 32], 10), direct(), [1e-4; 2]);
}

#[test]
fn resnet18_by_winograd() {
    let make = |p: &Params| ResNet::resnet18(10, Stem::Cifar, p.builder());
    // A ReLU's input that is zero but for rounding may fall on the other side: a jump of gradients of few pixels, here 64 a channel.
    let data = batch([4, 3, 32, 32], 10);
    compare(make, data, Options::default(), [1e-4, 1e-1]);
}

/// Seven layers of 3x3 without a kink.
struct Smooth {
    layers: Vec<ConvNormAct>,
    head: Linear,
}

impl ModuleT for Smooth {
    fn forward_t(&self, xs: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let first = xs.clone();
        let apply = |xs: Tensor, layer: &ConvNormAct| layer.forward_t(&xs, train);
        let xs = self.layers.iter().try_fold(first, apply)?;
        let features = ops::flatten(&ops::adaptive_avg_pool2d(&xs, [1, 1])?, 1)?;
        self.head.forward_t(&features, train)
    }
}

#[test]
fn a_deep_smooth_network_by_winograd() {
    let make = |p: &Params| {
        let config = ConvNormActConfig {
            activation: Some(Activation::Silu),
            ..Default::default()
        };
        let layer = |i: usize| {
            let inputs = if i == 0 { 3 } else { 64 };
            ConvNormAct::new(inputs, 64, config, p.builder().pp(i))
        };
        Ok(Smooth {
            layers: (0..7).map(layer).collect::<candle_core::Result<_>>()?,
            head: Linear::new(64, 10, p.builder().pp("head"))?,
        })
    };
    let data = batch([4, 3, 32, 32], 10);
    compare(make, data, Options::default(), [1e-4; 2]);
}

#[test]
fn vit_tiny() {
    let make = |p: &Params| {
        let mut config = VisionTransformerConfig::tiny();
        config.patch_embed.image_size = 32;
        config.patch_embed.patch_size = 8;
        config.block.drop_path = 0.1;
        config.num_classes = 10;
        config.depth = 3;
        VisionTransformer::from_config(config, p.builder())
    };
    compare(make, batch([2, 3, 32, 32], 10), direct(), [1e-5; 2]);
}

/// The same bytes again, and for any number of threads.
#[test]
fn repeatable() {
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let (images, labels) = batch([8, 3, 32, 32], 10);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let mut compiler = StepCompiler::new(Options::default()).unwrap();
            rng::begin_step(1, 1);
            let step = compiler
                .run(&params, &images, &labels, |images, labels| {
                    let outputs = model.forward_t(images, true)?;
                    let loss = ops::cross_entropy(&outputs, labels, &Default::default())?;
                    Ok((loss, outputs))
                })
                .unwrap();
            let bits = |t: &Tensor| -> Vec<u32> {
                let values = t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                values.into_iter().map(f32::to_bits).collect()
            };
            let gradients: Vec<_> = params
                .trainable()
                .iter()
                .map(|(_, var)| bits(step.gradients.get(var).unwrap()))
                .collect();
            (step.loss.to_bits(), gradients)
        })
    };
    let one = run(1);
    assert!(one == run(1), "a second run differs");
    assert!(one == run(2), "two threads give other bits than one");
}

#[test]
fn a_frozen_layer_gets_no_gradient_and_costs_another_plan() {
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let (images, labels) = batch([4, 3, 32, 32], 10);
    let mut compiler = StepCompiler::new(Options::default()).unwrap();
    let forward = |images: &Tensor, labels: &Tensor| {
        let outputs = model.forward_t(images, true)?;
        Ok((
            ops::cross_entropy(&outputs, labels, &Default::default())?,
            outputs,
        ))
    };
    let first = compiler.run(&params, &images, &labels, forward).unwrap();
    let (name, weight) = params.trainable()[0].clone();
    assert!(first.gradients.get(&weight).is_some());
    assert!(params.freeze(&name) > 0);
    let second = compiler.run(&params, &images, &labels, forward).unwrap();
    assert!(second.gradients.get(&weight).is_none());
    assert_eq!(compiler.metrics().recompiles, 1);
}

#[test]
fn wrong_use_is_said_in_words() {
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let forward = |images: &Tensor, labels: &Tensor| {
        let outputs = model.forward_t(images, true)?;
        Ok((
            ops::cross_entropy(&outputs, labels, &Default::default())?,
            outputs,
        ))
    };
    let (images, labels) = batch([4, 3, 32, 32], 10);
    let mut compiler = StepCompiler::new(Options::default().cache_limit(1)).unwrap();
    compiler.run(&params, &images, &labels, forward).unwrap();
    let (more, classes) = batch([6, 3, 32, 32], 10);
    let message = |result: tallow_compile::Result<tallow_compile::Step>| match result {
        Ok(_) => panic!("no error"),
        Err(error) => error.to_string(),
    };
    let text = message(compiler.run(&params, &more, &classes, forward));
    assert!(
        text.contains("cache limit is 1") && text.contains("f32[6, 3, 32, 32]"),
        "{text}"
    );

    let not_scalar = |images: &Tensor, _: &Tensor| {
        let outputs = model.forward_t(images, true)?;
        Ok((outputs.clone(), outputs))
    };
    let mut compiler = StepCompiler::new(Options::default()).unwrap();
    let text = message(compiler.run(&params, &images, &labels, not_scalar));
    assert!(text.contains("not a scalar"), "{text}");

    params.freeze("");
    let text = message(compiler.run(&params, &images, &labels, forward));
    assert!(text.contains("no trainable parameter"), "{text}");

    let doubles = images.to_dtype(DType::F64).unwrap();
    let text = message(compiler.run(&params, &doubles, &labels, forward));
    assert!(text.contains("f32") || text.contains("f64"), "{text}");

    let bad = Tensor::new(&[0u32, 1, 2, 99], &Device::Cpu).unwrap();
    params.unfreeze("");
    let text = message(compiler.run(&params, &images, &bad, forward));
    assert!(text.contains("99"), "{text}");
}

/// Reads an image row by row, `[N, 1, 7, 5]`, and looks at what was put out at every row.
struct RowReader<L> {
    recurrent: L,
    head: Linear,
}

impl<L: ModuleT> ModuleT for RowReader<L> {
    fn forward_t(&self, images: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let rows = ops::reshape(images, &[images.dims()[0], 7, 5])?;
        let outputs = self.recurrent.forward_t(&rows, train)?;
        self.head.forward_t(&ops::flatten(&outputs, 1)?, train)
    }
}

#[test]
fn recurrent_layers_whose_steps_in_time_become_one_plan() {
    let config = RecurrentConfig {
        num_layers: 2,
        batch_first: true,
        dropout: 0.3,
        bidirectional: true,
        ..Default::default()
    };
    let head = |p: &Params| Linear::new(7 * 2 * 6, 3, p.builder().pp("head"));
    let lstm = |p: &Params| {
        Ok(RowReader {
            recurrent: Lstm::new(5, 6, config, p.builder().pp("lstm"))?,
            head: head(p)?,
        })
    };
    compare(lstm, batch([4, 1, 7, 5], 3), direct(), [1e-5; 2]);
    let gru = |p: &Params| {
        Ok(RowReader {
            recurrent: Gru::new(5, 6, config, p.builder().pp("gru"))?,
            head: head(p)?,
        })
    };
    compare(gru, batch([4, 1, 7, 5], 3), direct(), [1e-5; 2]);
}
