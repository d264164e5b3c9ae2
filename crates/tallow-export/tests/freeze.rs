//! Freezing: what a program is made of, and who can't be frozen.

mod common;

use candle_core::{Device, Tensor};
use candle_nn::{ModuleT, VarBuilder};
use common::{difference, models, noise, small_vit};
use tallow_compile::Options;
use tallow_export::{Error, FreezeOptions, freeze, verify_inference_mode, verify_model};
use tallow_graph::op::Dropout;
use tallow_graph::{Graph, Op, TensorType};
use tallow_nn::{BatchNorm2d, Conv2d, SimpleCifar, VisionTransformer};
use tallow_tensor::{Params, ops, scope};

fn exact() -> Options {
    Options::default().winograd(false)
}

#[test]
fn a_program_equals_the_eager_model() {
    for case in models() {
        let program = FreezeOptions::new()
            .params(&case.params)
            .freeze(&case.model, &case.example)
            .unwrap();
        let runner = program.compile(exact()).unwrap();
        let expected = case.model.forward_t(&case.example, false).unwrap();
        for _ in 0..2 {
            let found = runner.forward(&case.example).unwrap();
            let worst = difference(&found, &expected);
            assert!(worst <= 1e-5, "{}: {worst:e}", case.name);
        }
        assert!(runner.metrics().kernels > 0, "{}", case.name);
    }
}

#[test]
fn weights_have_the_names_of_the_parameters_and_their_values_then() {
    let params = Params::f32_cpu();
    let model = VisionTransformer::from_config(small_vit(), params.builder()).unwrap();
    let image = noise(&[1, 3, 32, 32], 1);
    let program = FreezeOptions::new()
        .params(&params)
        .freeze(&model, &image)
        .unwrap();
    assert_eq!(program.weight_names().collect::<Vec<_>>(), params.names());
    let runner = program.compile(exact()).unwrap();
    let before = model.forward_t(&image, false).unwrap();
    let bias = params.get("head.bias").unwrap().var;
    bias.set(&Tensor::full(3f32, 10, &Device::Cpu).unwrap())
        .unwrap();
    assert!(difference(&runner.forward(&image).unwrap(), &before) <= 1e-5);
    assert_eq!(program.weight("head.bias").unwrap().bytes.as_ref(), [0; 40]);
}

#[test]
fn batch_sizes_share_the_weights_and_others_are_refused() {
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let images = noise(&[3, 3, 32, 32], 1);
    let program = FreezeOptions::new()
        .batch_sizes(&[1, 3, 8])
        .input_name("images")
        .freeze(&model, &images)
        .unwrap();
    assert_eq!(program.batch_sizes(), [1, 3, 8]);
    assert_eq!(program.weight_names().count(), params.len());
    let runner = program.compile(exact()).unwrap();
    let expected = model.forward_t(&images, false).unwrap();
    assert!(difference(&runner.forward(&images).unwrap(), &expected) <= 1e-5);
    let first = runner.forward(&images.narrow(0, 0, 1).unwrap()).unwrap();
    assert!(difference(&first, &expected.narrow(0, 0, 1).unwrap()) <= 1e-4);

    let refused = runner.forward(&images.narrow(0, 0, 2).unwrap());
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("f32[2, 3, 32, 32]"), "{message}");
    assert!(message.contains("images: f32[8, 3, 32, 32]"), "{message}");
    assert!(runner.run(&[]).is_err());
    assert!(runner.forward_t(&images, true).is_err());
    let alone = program.for_batch(8).unwrap();
    assert_eq!(alone.batch_sizes(), [8]);
    assert!(program.for_batch(2).is_none());
    for sizes in [&[0][..], &[1, 1]] {
        let options = FreezeOptions::new().batch_sizes(sizes);
        assert!(options.freeze(&model, &images).is_err(), "{sizes:?}");
    }
}

#[test]
fn verification_leaves_the_model_as_it_was() {
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let before = params.to_tensors().unwrap();
    verify_model(&model, &noise(&[2, 3, 32, 32], 1)).unwrap();
    for (name, tensor) in params.to_tensors().unwrap() {
        assert_eq!(difference(&tensor, &before[&name]), 0.0, "{name}");
    }
}

/// A model that trains whatever it is told.
struct Stubborn {
    conv: Conv2d,
    norm: BatchNorm2d,
}

impl Stubborn {
    fn new(vb: VarBuilder) -> candle_core::Result<Self> {
        let config = tallow_nn::Conv2dConfig::default();
        Ok(Self {
            conv: Conv2d::new(1, 4, 3, config, vb.pp("conv"))?,
            norm: BatchNorm2d::new(4, Default::default(), vb.pp("norm"))?,
        })
    }
}

impl ModuleT for Stubborn {
    fn forward_t(&self, xs: &Tensor, _train: bool) -> candle_core::Result<Tensor> {
        let xs = self.conv.forward_t(xs, true)?;
        let xs = {
            let _scope = scope::enter("noise");
            ops::dropout(&xs, 0.5, true)?
        };
        self.norm.forward_t(&xs, true)
    }
}

#[test]
fn a_model_that_trains_is_named_by_module() {
    let params = Params::f32_cpu();
    let model = Stubborn::new(params.builder()).unwrap();
    let image = noise(&[2, 1, 8, 8], 1);
    for error in [
        verify_model(&model, &image).unwrap_err(),
        freeze(&model, &image).unwrap_err(),
    ] {
        let Error::NotInference(offenders) = &error else {
            panic!("{error}");
        };
        let found: Vec<(&str, &str)> = offenders
            .iter()
            .map(|offender| (offender.module.as_str(), offender.operation))
            .collect();
        assert_eq!(found, [("noise", "dropout"), ("norm", "batch_norm")]);
        assert!(error.to_string().contains("norm: batch_norm normalises"));
    }
}

#[test]
fn a_graph_is_verified_by_itself() {
    let mut graph = Graph::default();
    let input = Op::Input(tallow_graph::op::Input {
        name: "x".into(),
        ty: TensorType::f32([2, 2]),
    });
    let x = graph.push(input, &[], "").unwrap();
    verify_inference_mode(&graph).unwrap();
    let dropout = Op::Dropout(Dropout { p: 0.5, draw: 0 });
    let y = graph.push(dropout, &[x], "head.drop").unwrap();
    graph.outputs.push(y);
    let error = verify_inference_mode(&graph).unwrap_err().to_string();
    assert!(error.contains("head.drop: dropout drops"), "{error}");
}

#[test]
fn a_model_that_cannot_be_captured_says_where() {
    let model = candle_nn::func_t(|xs: &Tensor, _| xs.sqr()?.sqrt());
    let error = freeze(&model, &noise(&[1, 4], 1)).err().unwrap();
    assert!(error.to_string().contains("graph break"), "{error}");
}
