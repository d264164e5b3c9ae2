//! Graphs made at random, compiled and interpreted.

mod common;

use std::collections::HashMap;

use candle_core::{Device, Tensor};
use common::close;
use proptest::prelude::*;
use tallow_compile::{Options, StepCompiler};
use tallow_tensor::ops::{self, CrossEntropyConfig, Pool2dConfig};
use tallow_tensor::{Params, rng::Stream};

/// One layer of a random network; channels and size stay in a range where every other one fits behind.
#[derive(Debug, Clone, Copy)]
enum Layer {
    Conv {
        out: usize,
        kernel: usize,
        stride: usize,
        bias: bool,
    },
    Depthwise,
    Norm {
        train: bool,
    },
    Relu,
    Relu6,
    Gelu,
    Silu,
    Hardswish,
    Scale,
    Residual,
    MaxPool,
    AvgPool,
    Permute,
    Concat,
    GroupNorm,
}

fn layer() -> impl Strategy<Value = Layer> {
    prop_oneof![
        (
            1usize..20,
            prop_oneof![Just(1), Just(3)],
            1usize..3,
            any::<bool>()
        )
            .prop_map(|(out, kernel, stride, bias)| Layer::Conv {
                out,
                kernel,
                stride,
                bias
            }),
        Just(Layer::Depthwise),
        any::<bool>().prop_map(|train| Layer::Norm { train }),
        Just(Layer::Relu),
        Just(Layer::Relu6),
        Just(Layer::Gelu),
        Just(Layer::Silu),
        Just(Layer::Hardswish),
        Just(Layer::Scale),
        Just(Layer::Residual),
        Just(Layer::MaxPool),
        Just(Layer::AvgPool),
        Just(Layer::Permute),
        Just(Layer::Concat),
        Just(Layer::GroupNorm),
    ]
}

/// A network of layers, its parameters made as it first runs.
struct Net<'a> {
    layers: &'a [Layer],
    params: &'a Params,
}

impl Net<'_> {
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let mut xs = images.clone();
        for (index, layer) in self.layers.iter().enumerate() {
            xs = self.layer(index, *layer, &xs)?;
        }
        let pooled = ops::adaptive_avg_pool2d(&xs, [2, 2])?;
        let flat = ops::flatten(&pooled, 1)?;
        let weight = self.weight("head", &[3, flat.dims()[1]])?;
        ops::linear(&flat, &weight, Some(&self.weight("bias", &[3])?))
    }

    fn weight(&self, name: &str, shape: &[usize]) -> candle_core::Result<Tensor> {
        let init = candle_nn::Init::Randn {
            mean: 0.0,
            stdev: 0.4,
        };
        self.params.builder().get_with_hints(shape, name, init)
    }

    fn vector(&self, name: &str, len: usize) -> candle_core::Result<Tensor> {
        let init = candle_nn::Init::Uniform { lo: 0.5, up: 1.5 };
        self.params.builder().get_with_hints(len, name, init)
    }

    fn layer(&self, index: usize, layer: Layer, xs: &Tensor) -> candle_core::Result<Tensor> {
        let name = |what: &str| format!("{what}{index}");
        let channels = xs.dims()[1];
        let conv = |groups, stride, kernel: usize| ops::Conv2dConfig {
            stride: [stride; 2],
            padding: [kernel / 2; 2],
            dilation: [1, 1],
            groups,
        };
        match layer {
            Layer::Conv {
                out,
                kernel,
                stride,
                bias,
            } => {
                let weight = self.weight(&name("w"), &[out, channels, kernel, kernel])?;
                let bias = if bias {
                    Some(self.vector(&name("b"), out)?)
                } else {
                    None
                };
                ops::conv2d(xs, &weight, bias.as_ref(), &conv(1, stride, kernel))
            }
            Layer::Depthwise => {
                let weight = self.weight(&name("w"), &[channels, 1, 3, 3])?;
                ops::conv2d(xs, &weight, None, &conv(channels, 1, 3))
            }
            Layer::Norm { train } => {
                let [weight, bias] = [name("g"), name("b")].map(|n| self.vector(&n, channels));
                let vb = self.params.builder();
                let mean = tallow_tensor::params::buffer(&vb, channels, &name("mean"), 0.1)?;
                let var = tallow_tensor::params::buffer(&vb, channels, &name("var"), 1.2)?;
                let args = ops::BatchNormArgs {
                    weight: &weight?,
                    bias: &bias?,
                    running_mean: &mean,
                    running_var: &var,
                    eps: 1e-3,
                    momentum: 0.1,
                };
                ops::batch_norm(xs, &args, train)
            }
            Layer::Relu => ops::relu(xs),
            Layer::Relu6 => ops::relu6(xs),
            Layer::Gelu => ops::gelu(xs),
            Layer::Silu => ops::silu(xs),
            Layer::Hardswish => ops::hardswish(xs),
            Layer::Scale => ops::mul_scalar(&ops::add_scalar(xs, 0.5)?, 0.7),
            Layer::Residual => ops::add(xs, &ops::tanh(xs)?),
            Layer::MaxPool if xs.dims()[2] > 3 && xs.dims()[3] > 3 => {
                ops::max_pool2d(xs, &Pool2dConfig::new(2))
            }
            Layer::AvgPool if xs.dims()[2] > 3 && xs.dims()[3] > 3 => {
                ops::avg_pool2d(xs, &Pool2dConfig::new(2), true)
            }
            Layer::MaxPool | Layer::AvgPool => Ok(xs.clone()),
            Layer::Permute => ops::permute(xs, &[0, 1, 3, 2]),
            Layer::Concat => ops::concat(&[xs, &ops::sigmoid(xs)?], 1),
            Layer::GroupNorm => {
                let [weight, bias] = [name("g"), name("b")].map(|n| self.vector(&n, channels));
                ops::group_norm(xs, &weight?, &bias?, 1, 1e-3)
            }
        }
    }
}

fn images(seed: u64) -> Tensor {
    let mut stream = Stream::new(seed);
    let values: Vec<f32> = (0..3 * 2 * 9 * 8).map(|_| stream.normal() as f32).collect();
    Tensor::from_vec(values, (3, 2, 9, 8), &Device::Cpu).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Loss, logits, gradients and buffers of a random network.
    #[test]
    fn a_step_equals_the_tape(layers in prop::collection::vec(layer(), 1..7), seed in 0u64..1000) {
        let params = Params::f32_cpu();
        let net = Net { layers: &layers, params: &params };
        let images = images(seed);
        let labels = Tensor::new(&[0u32, 2, 1], &Device::Cpu).unwrap();
        let forward = |images: &Tensor, labels: &Tensor| {
            let outputs = net.forward(images)?;
            let loss = ops::cross_entropy(&outputs, labels, &CrossEntropyConfig::default())?;
            Ok((loss, outputs))
        };
        // Makes the parameters.
        forward(&images, &labels).unwrap();
        let before = params.to_tensors().unwrap();
        let reset = || {
            let strict = tallow_tensor::params::Strict::Yes;
            params.load_tensors(&before, strict).unwrap();
        };
        reset();
        let eager = common::eager_step(&images, &labels, &forward);
        let buffers = params.to_tensors().unwrap();
        for options in [Options::default().winograd(false), Options::default()] {
            reset();
            let tolerance = if options.winograd { 1e-3 } else { 2e-4 };
            let mut compiler = StepCompiler::new(options).unwrap();
            let step = compiler.run(&params, &images, &labels, forward).unwrap();
            close("outputs", &step.outputs, &eager.outputs, tolerance);
            // A gradient that is zero but for rounding is compared on the scale of the others.
            let trainable = params.trainable();
            let scale = trainable.iter().filter_map(|(_, var)| {
                let gradient = eager.gradients.get(var)?.abs().ok()?.flatten_all().ok()?;
                gradient.max(0).ok()?.to_scalar::<f32>().ok()
            });
            let scale = scale.fold(0f32, f32::max);
            for (name, var) in params.trainable() {
                let Some(expected) = eager.gradients.get(&var) else { continue };
                let found = step.gradients.get(&var).unwrap();
                common::close_at(&name, found, expected, tolerance, scale);
            }
            for (name, after) in params.to_tensors().unwrap() {
                close(&name, &after, &buffers[&name], 1e-5);
            }
        }
    }
}

#[test]
fn the_interpreter_runs_a_captured_graph() {
    let params = Params::f32_cpu();
    let model = tallow_nn::SimpleCifar::new(2, 3, params.builder()).unwrap();
    let images = images(1);
    let graph = tallow_tensor::capture_model(&model, &images, false, Some(&params)).unwrap();
    let values: HashMap<String, Tensor> = params
        .iter()
        .map(|entry| (entry.name, entry.var.as_tensor().clone()))
        .collect();
    let outputs =
        tallow_compile::interpret(&graph, std::slice::from_ref(&images), &values).unwrap();
    let expected = candle_nn::ModuleT::forward_t(&model, &images, false).unwrap();
    close("logits", &outputs[0], &expected, 0.0);
    let error = tallow_compile::interpret(&graph, &[images], &HashMap::new()).unwrap_err();
    assert!(error.to_string().contains("was not given"), "{error}");
}
