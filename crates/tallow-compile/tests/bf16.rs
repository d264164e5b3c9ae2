//! `Precision::Bf16`: what is multiplied is rounded to bfloat16, everything else stays as it is.

mod common;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Init, ModuleT, VarBuilder};
use common::{batch, close};
use tallow_compile::{Options, Precision, StepCompiler, compile, explain};
use tallow_kernels::simd::{self, Level};
use tallow_nn::{ResNet, SimpleCifar, Stem};
use tallow_tensor::ops::{self, CrossEntropyConfig};
use tallow_tensor::{Params, rng};

fn bf16() -> Options {
    Options::default().precision(Precision::Bf16)
}

/// A convolution, a bias, a pool and a linear layer; with `rounds` their operands are rounded in the model itself, with
/// gradients that pass through.
struct Net {
    weight: Tensor,
    bias: Tensor,
    head: Tensor,
    rounds: bool,
}

impl Net {
    fn new(vb: VarBuilder, rounds: bool) -> Result<Self> {
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 0.3,
        };
        Ok(Self {
            weight: vb.get_with_hints((8, 6, 3, 3), "weight", normal)?,
            bias: vb.get_with_hints(8, "bias", normal)?,
            head: vb.get_with_hints((5, 8), "head", normal)?,
            rounds,
        })
    }

    fn operand(&self, xs: &Tensor) -> Result<Tensor> {
        if !self.rounds {
            return Ok(xs.clone());
        }
        let error = (round(&xs.detach())? - xs.detach())?;
        xs + error
    }
}

fn round(xs: &Tensor) -> Result<Tensor> {
    xs.to_dtype(DType::BF16)?.to_dtype(DType::F32)
}

impl ModuleT for Net {
    fn forward_t(&self, xs: &Tensor, _train: bool) -> Result<Tensor> {
        let (xs, weight) = (self.operand(xs)?, self.operand(&self.weight)?);
        let config = ops::Conv2dConfig {
            padding: [1, 1],
            ..Default::default()
        };
        let xs = ops::relu(&ops::conv2d(&xs, &weight, Some(&self.bias), &config)?)?;
        let xs = ops::flatten(&ops::adaptive_avg_pool2d(&xs, [1, 1])?, 1)?;
        ops::linear(&self.operand(&xs)?, &self.operand(&self.head)?, None)
    }
}

#[test]
fn inference_multiplies_rounded_operands() {
    for winograd in [false, true] {
        let params = Params::f32_cpu();
        let model = Net::new(params.builder(), false).unwrap();
        let rounded = Net {
            rounds: true,
            ..Net::new(params.builder(), true).unwrap()
        };
        let (images, _) = batch([2, 6, 8, 8], 5);
        let compiled = compile(&model, &images, bf16().winograd(winograd)).unwrap();
        let found = compiled.forward(&images).unwrap();
        close(
            "bf16",
            &found,
            &rounded.forward_t(&images, false).unwrap(),
            1e-5,
        );
        let exact = model.forward_t(&images, false).unwrap();
        close("f32", &found, &exact, 2e-2);
        let difference = (found - exact).unwrap().abs().unwrap().max_all().unwrap();
        assert!(difference.to_scalar::<f32>().unwrap() > 1e-5);
    }
}

#[test]
fn gradients_are_products_of_rounded_operands_and_stay_f32() {
    let params = Params::f32_cpu();
    let model = Net::new(params.builder(), false).unwrap();
    let reference = Net::new(params.builder(), true).unwrap();
    let (images, labels) = batch([4, 6, 8, 8], 5);
    let config = CrossEntropyConfig::default();
    let forward = |model: &Net, images: &Tensor, labels: &Tensor| {
        let outputs = model.forward_t(images, true)?;
        Ok((ops::cross_entropy(&outputs, labels, &config)?, outputs))
    };
    let (loss, _) = forward(&reference, &images, &labels).unwrap();
    let expected = loss.backward().unwrap();
    let mut steps = StepCompiler::new(bf16()).unwrap();
    let step = steps
        .run(&params, &images, &labels, |x, t| forward(&model, x, t))
        .unwrap();
    let loss = f64::from(loss.to_scalar::<f32>().unwrap());
    assert!((f64::from(step.loss) - loss).abs() < 1e-5);
    for (name, var) in params.trainable() {
        let found = step.gradients.get(&var).unwrap();
        assert_eq!(found.dtype(), DType::F32);
        // The tape's products have the gradient of what comes out as it is, not rounded.
        close(&name, found, expected.get(&var).unwrap(), 1e-2);
    }
}

/// Losses of steps of gradient descent.
fn losses(options: Options, threads: usize) -> Vec<f32> {
    let run = || {
        let params = Params::f32_cpu();
        let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
        let (images, labels) = batch([16, 3, 16, 16], 10);
        let mut steps = StepCompiler::new(options.clone()).unwrap();
        let forward = |images: &Tensor, labels: &Tensor| {
            let outputs = model.forward_t(images, true)?;
            let loss = ops::cross_entropy(&outputs, labels, &CrossEntropyConfig::default())?;
            Ok((loss, outputs))
        };
        let one = |step: u64| {
            rng::begin_step(7, step);
            let done = steps.run(&params, &images, &labels, forward).unwrap();
            for (_, var) in params.trainable() {
                let change = (done.gradients.get(&var).unwrap() * 0.05).unwrap();
                var.set(&(var.as_tensor() - change).unwrap()).unwrap();
            }
            done.loss
        };
        (0..30).map(one).collect()
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build().unwrap().install(run)
}

#[test]
fn a_training_follows_that_in_f32_and_repeats_itself() {
    let exact = losses(Options::default(), 1);
    let found = losses(bf16(), 1);
    assert!(found[29] < 0.5 * found[0], "{found:?}");
    for (found, exact) in found.iter().zip(&exact) {
        assert!(
            (found - exact).abs() < 0.05 * exact.max(0.2),
            "{found} {exact}"
        );
    }
    assert_ne!(found, exact);
    assert_eq!(found, losses(bf16(), 2));
}

#[test]
fn large_models_stay_near_f32() {
    let params = Params::f32_cpu();
    let model = ResNet::resnet18(10, Stem::Cifar, params.builder()).unwrap();
    let (images, _) = batch([2, 3, 32, 32], 10);
    let compiled = compile(&model, &images, bf16()).unwrap();
    let expected = model.forward_t(&images, false).unwrap();
    close(
        "logits",
        &compiled.forward(&images).unwrap(),
        &expected,
        3e-2,
    );
}

#[test]
fn the_graph_shows_what_is_rounded() {
    let params = Params::f32_cpu();
    let model = Net::new(params.builder(), false).unwrap();
    let images = Tensor::zeros((1, 6, 8, 8), DType::F32, &Device::Cpu).unwrap();
    let kernels = explain(&model, &images, &bf16()).unwrap().kernels;
    // Images and features; the weights are rounded once, ahead. Kernels with instructions for bfloat16 round themselves.
    let expected = match simd::level() {
        Level::Avx512Bf16 => None,
        _ => Some(&2),
    };
    assert_eq!(kernels.get("round_bf16"), expected);
    let plain = explain(&model, &images, &Options::default()).unwrap();
    assert!(!plain.kernels.contains_key("round_bf16"));
}
