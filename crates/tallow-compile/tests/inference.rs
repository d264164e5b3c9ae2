//! Compiled inference beside the eager model, and everything a user can ask of it.

mod common;

use candle_core::{DType, Device, Module, Tensor, Var};
use candle_nn::ModuleT;
use common::{batch, close};
use tallow_compile::{Error, Mode, Options, compile, explain, pass_names};
use tallow_nn::{
    AlexNet, LeNet5, ResNet, SimpleCifar, Stem, VisionTransformer, VisionTransformerConfig,
};
use tallow_tensor::{Params, ops, rng::Stream};

/// Gives batch norms something to do: running statistics that aren't 0 and 1.
fn stir(params: &Params) {
    let mut stream = Stream::new(3);
    for entry in params {
        let shape = entry.var.dims().to_vec();
        let count = entry.var.elem_count();
        if entry.name.ends_with("running_mean") || entry.name.ends_with("running_var") {
            let values: Vec<f32> = (0..count).map(|_| 0.5 + stream.uniform() as f32).collect();
            let values = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
            entry.var.set(&values).unwrap();
        }
    }
    tallow_tensor::inplace::touch();
}

fn compare<M: ModuleT>(model: &M, params: &Params, images: &Tensor, options: Options, limit: f64) {
    stir(params);
    let compiled = compile(model, images, options).unwrap();
    let expected = model.forward_t(images, false).unwrap();
    for _ in 0..2 {
        close(
            "logits",
            &compiled.forward_t(images, false).unwrap(),
            &expected,
            limit,
        );
    }
    assert_eq!(compiled.metrics().fallbacks, 0);
}

fn direct() -> Options {
    Options::default().winograd(false)
}

#[test]
fn every_model_equals_eager() {
    let small = batch([2, 3, 32, 32], 10).0;
    let params = Params::f32_cpu();
    compare(
        &SimpleCifar::new(3, 10, params.builder()).unwrap(),
        &params,
        &small,
        direct(),
        1e-5,
    );
    let params = Params::f32_cpu();
    let model = ResNet::resnet18(10, Stem::Cifar, params.builder()).unwrap();
    compare(&model, &params, &small, direct(), 1e-5);
    compare(&model, &params, &small, Options::default(), 1e-4);
    let params = Params::f32_cpu();
    let digits = batch([2, 1, 28, 28], 10).0;
    compare(
        &LeNet5::new(10, params.builder()).unwrap(),
        &params,
        &digits,
        direct(),
        1e-5,
    );
    let params = Params::f32_cpu();
    let mut config = VisionTransformerConfig::tiny();
    config.patch_embed.image_size = 32;
    config.patch_embed.patch_size = 8;
    config.depth = 2;
    let model = VisionTransformer::from_config(config, params.builder()).unwrap();
    compare(&model, &params, &small, direct(), 1e-5);
}

#[test]
fn large_models_equal_eager() {
    let images = batch([1, 3, 64, 64], 10).0;
    let params = Params::f32_cpu();
    let model = ResNet::resnet50(10, Stem::ImageNet, params.builder()).unwrap();
    compare(&model, &params, &images, direct(), 1e-5);
    compare(&model, &params, &images, Options::default(), 1e-4);
    let params = Params::f32_cpu();
    let model = AlexNet::new(10, params.builder()).unwrap();
    compare(
        &model,
        &params,
        &batch([1, 3, 96, 96], 10).0,
        direct(),
        1e-5,
    );
}

#[test]
fn each_pass_can_be_switched_off() {
    let params = Params::f32_cpu();
    let model = ResNet::resnet18(10, Stem::Cifar, params.builder()).unwrap();
    let images = batch([1, 3, 16, 16], 10).0;
    for pass in pass_names() {
        compare(&model, &params, &images, direct().without_pass(pass), 1e-5);
    }
    let none = pass_names()
        .into_iter()
        .fold(direct(), Options::without_pass);
    compare(&model, &params, &images, none, 1e-5);
}

#[test]
fn changed_parameters_are_honoured() {
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let images = batch([2, 3, 32, 32], 10).0;
    let compiled = compile(&model, &images, direct()).unwrap();
    let other = Params::new(7, DType::F32, &Device::Cpu);
    SimpleCifar::new(3, 10, other.builder()).unwrap();
    params
        .load_tensors(
            &other.to_tensors().unwrap(),
            tallow_tensor::params::Strict::Yes,
        )
        .unwrap();
    let expected = model.forward_t(&images, false).unwrap();
    close(
        "after loading",
        &compiled.forward_t(&images, false).unwrap(),
        &expected,
        1e-5,
    );

    let (_, bias) = params
        .trainable()
        .into_iter()
        .find(|(name, _)| name == "fc.bias")
        .unwrap();
    bias.set(&Tensor::full(3f32, 10, &Device::Cpu).unwrap())
        .unwrap();
    compiled.refresh();
    let expected = model.forward_t(&images, false).unwrap();
    close(
        "after setting",
        &compiled.forward_t(&images, false).unwrap(),
        &expected,
        1e-5,
    );
}

#[test]
fn another_shape_is_another_plan() {
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let options = direct().cache_limit(2);
    let compiled = compile(&model, &batch([1, 3, 32, 32], 10).0, options).unwrap();
    compiled.forward(&batch([2, 3, 32, 32], 10).0).unwrap();
    compiled.forward(&batch([1, 3, 32, 32], 10).0).unwrap();
    let metrics = compiled.metrics();
    assert_eq!((metrics.recompiles, metrics.cache_hits), (1, 1));
    let error = compiled.forward(&batch([3, 3, 32, 32], 10).0).unwrap_err();
    assert!(
        matches!(error, Error::CacheLimit { limit: 2, .. }),
        "{error}"
    );
}

/// A model with a raw candle operation in the middle.
struct Broken {
    weight: Var,
}

impl ModuleT for Broken {
    fn forward_t(&self, xs: &Tensor, _train: bool) -> candle_core::Result<Tensor> {
        let xs = ops::relu(&ops::linear(xs, &self.weight, None)?)?;
        ops::mul_scalar(&xs.relu()?, 2.0)
    }
}

#[test]
fn a_break_is_named_or_runs_eagerly() {
    let weight = Var::new(&[[1f32, -2.0], [0.5, 0.25]], &Device::Cpu).unwrap();
    let model = Broken { weight };
    let xs = Tensor::new(&[[1f32, 2.0]], &Device::Cpu).unwrap();
    let error = match compile(&model, &xs, Options::default()) {
        Ok(_) => panic!("compiled a broken graph"),
        Err(error) => error.to_string(),
    };
    assert!(
        error.contains("relu") && error.contains("write instead"),
        "{error}"
    );

    let compiled = compile(&model, &xs, Options::default().fullgraph(false)).unwrap();
    let expected = model.forward_t(&xs, false).unwrap();
    close("fallback", &compiled.forward(&xs).unwrap(), &expected, 0.0);
    assert_eq!(compiled.metrics().fallbacks, 2);

    let explanation = explain(&model, &xs, &Options::default()).unwrap();
    assert_eq!((explanation.graphs, explanation.breaks.len()), (0, 1));
    assert!(
        explanation.to_string().contains("write instead"),
        "{explanation}"
    );
}

#[test]
fn explanation_tells_what_was_joined() {
    let params = Params::f32_cpu();
    let model = ResNet::resnet18(10, Stem::Cifar, params.builder()).unwrap();
    let explanation = explain(&model, &batch([1, 3, 32, 32], 10).0, &Options::default()).unwrap();
    let text = explanation.to_string();
    assert!(
        text.contains("layer1.0.conv2: conv2d + bias + add + relu"),
        "{text}"
    );
    assert_eq!(explanation.operations["batch_norm"], 20);
    assert!(!explanation.kernels.contains_key("batch_norm"), "{text}");
    assert!(
        explanation.memory.planned < explanation.memory.naive,
        "{text}"
    );
    assert!(
        explanation.memory.live <= explanation.memory.planned,
        "{text}"
    );
}

#[test]
fn options_that_cannot_be_met() {
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let images = batch([1, 3, 32, 32], 10).0;
    let message = |options| match compile(&model, &images, options) {
        Ok(_) => panic!("compiled"),
        Err(error) => error.to_string(),
    };
    let text = message(Options::default().without_pass("dead_cod"));
    assert!(
        text.contains("dead_cod") && text.contains("dead_code"),
        "{text}"
    );
}

#[test]
fn autotuned_choices_are_kept_in_a_file() {
    let folder = std::env::temp_dir().join(format!("tallow-autotune-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, dump) = (folder.join("choices.txt"), folder.join("passes"));
    let params = Params::f32_cpu();
    let model = ResNet::resnet18(10, Stem::Cifar, params.builder()).unwrap();
    let images = batch([1, 3, 16, 16], 10).0;
    let options = Options::default()
        .mode(Mode::MaxAutotune)
        .autotune_file(&file)
        .dump(&dump);
    compare(&model, &params, &images, options.clone(), 1e-4);
    let choices = std::fs::read_to_string(&file).unwrap();
    assert!(choices.lines().count() >= 5, "{choices}");
    compare(&model, &params, &images, options, 1e-4);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), choices);
    let mut passes: Vec<_> = std::fs::read_dir(&dump)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    passes.sort();
    assert_eq!(passes[0], "00_captured.txt");
    assert!(
        passes
            .iter()
            .any(|name| name.ends_with("channels_last.txt")),
        "{passes:?}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_compiled_model_is_a_module_like_any() {
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let images = batch([2, 3, 32, 32], 10).0;
    let compiled = compile(&model, &images, Options::default()).unwrap();
    let net = candle_nn::seq().add_fn(move |xs| xs.affine(1.0, 0.0));
    let xs = net.forward(&images).unwrap();
    let loss = compiled.forward_t(&xs, true).unwrap().sum_all().unwrap();
    let gradients = loss.backward().unwrap();
    assert!(
        gradients.get(&params.trainable()[0].1).is_some(),
        "training goes through the tape"
    );
}
