//! Whole models against PyTorch, torchvision and timm: logits, loss, every gradient, running statistics. Parameters
//! follow `tests/golden/formula.py` on both sides.

mod reference;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{ModuleT, VarBuilder};
use indexmap::IndexMap;
use tallow_nn::*;
use tallow_tensor::params::Strict;
use tallow_tensor::{Params, ops};

use reference::{Case, TOLERANCE, formula};

/// Builds, fills and runs the model in one type and compares all that is stored.
fn check(
    name: &str,
    mode: &str,
    shape: &[usize],
    dtype: DType,
    make: impl Fn(VarBuilder) -> Result<Layer>,
) {
    let case = reference::case(&format!("models/{name}"), mode);
    let params = Params::new(42, dtype, &Device::Cpu);
    let model = make(params.builder()).expect("construction");
    fill(&params);
    let seed = reference::values(case.get("input_seed"))[0];
    let images = formula::image(&format!("{name}.input.{seed}"), shape);
    let images = images.and_then(|t| t.to_dtype(dtype)).unwrap();
    let images = Var::from_tensor(&images).unwrap();
    let logits = model.forward_t(&images, mode == "train").expect("forward");
    case.check("logits", &logits);
    let classes = logits.dims()[1];
    let labels: Vec<u32> = (0..shape[0]).map(|i| (i * 3 % classes) as u32).collect();
    let labels = Tensor::new(labels, &Device::Cpu).unwrap();
    let loss = ops::cross_entropy(&logits, &labels, &ops::CrossEntropyConfig::default()).unwrap();
    case.check("loss", &loss);
    let gradients = loss.backward().expect("backward");
    check_summary(
        &case,
        "input",
        gradients.get(&images).expect("the input has a gradient"),
    );
    for (parameter, var) in params.trainable() {
        let gradient = gradients
            .get(&var)
            .unwrap_or_else(|| panic!("{parameter} has no gradient"));
        check_summary(&case, &parameter, gradient);
        if case.has(&format!("grad.{parameter}")) {
            case.check(&format!("grad.{parameter}"), gradient);
        }
    }
    check_buffers(&case, &params);
}

fn fill(params: &Params) {
    let values: IndexMap<String, Tensor> = params
        .iter()
        .map(|entry| {
            (
                entry.name.clone(),
                formula::parameter(&entry.name, entry.var.dims()).unwrap(),
            )
        })
        .collect();
    params
        .load_tensors(&values, Strict::Yes)
        .expect("own names");
}

/// Norm and projection of a gradient, both relative to the norm.
fn check_summary(case: &Case, name: &str, gradient: &Tensor) {
    let expected = reference::values(case.get(&format!("summary.{name}")));
    compare_summary(case, name, gradient, &expected);
}

fn compare_summary(case: &Case, name: &str, actual: &Tensor, expected: &[f64]) {
    let actual = formula::summarise(&reference::values(actual), name);
    for (a, e) in actual.iter().zip(expected) {
        let error = (a - e).abs() / expected[0].max(1e-12);
        assert!(
            error < TOLERANCE,
            "{} {name}: {actual:?}, PyTorch has {expected:?} ({error:.2e})",
            case.name
        );
    }
}

fn check_buffers(case: &Case, params: &Params) {
    for (buffer, expected) in case.all("after") {
        let actual = params.get(&buffer).expect("buffer").var.as_tensor().clone();
        compare_summary(case, &buffer, &actual, &reference::values(&expected));
    }
}

fn boxed(model: impl ModuleT + Send + Sync + 'static) -> Result<Layer> {
    Ok(Layer::new(model))
}

const BOTH: [DType; 2] = [DType::F32, DType::F64];

#[test]
fn lenet5() {
    for dtype in BOTH {
        check("lenet5", "eval", &[4, 1, 28, 28], dtype, |vb| {
            boxed(LeNet5::new(10, vb)?)
        });
    }
}

#[test]
fn simple_cifar() {
    let config = SimpleCifarConfig {
        dropout: 0.0,
        ..Default::default()
    };
    let make = |vb: VarBuilder| boxed(SimpleCifar::from_config(config, vb)?);
    for dtype in BOTH {
        check("simple_cifar", "eval", &[4, 3, 16, 16], dtype, make);
        check("simple_cifar", "train", &[4, 3, 16, 16], dtype, make);
    }
}

#[test]
fn alexnet() {
    let config = AlexNetConfig {
        num_classes: 10,
        ..Default::default()
    };
    let make = |vb: VarBuilder| boxed(AlexNet::from_config(config, vb)?);
    check("alexnet", "eval", &[2, 3, 96, 96], DType::F32, make);
}

#[test]
fn resnet18() {
    let make = |vb: VarBuilder| boxed(ResNet::resnet18(1000, Stem::ImageNet, vb)?);
    for dtype in BOTH {
        check("resnet18", "eval", &[2, 3, 32, 32], dtype, make);
        check("resnet18", "train", &[4, 3, 64, 64], dtype, make);
    }
}

#[test]
fn resnet18_with_cifar_stem() {
    let make = |vb: VarBuilder| boxed(ResNet::resnet18(10, Stem::Cifar, vb)?);
    for dtype in BOTH {
        check("resnet18_cifar", "eval", &[2, 3, 16, 16], dtype, make);
        check("resnet18_cifar", "train", &[4, 3, 16, 16], dtype, make);
    }
}

#[test]
fn resnet50() {
    let make = |vb: VarBuilder| boxed(ResNet::resnet50(1000, Stem::ImageNet, vb)?);
    check("resnet50", "eval", &[2, 3, 32, 32], DType::F32, make);
    // batch norms over four values a channel, fifty layers deep: PyTorch's own f32 is a tenth off its f64
    check("resnet50", "train", &[4, 3, 32, 32], DType::F64, make);
}

#[test]
fn vit_tiny() {
    let make = |vb: VarBuilder| boxed(VisionTransformer::tiny(1000, vb)?);
    check("vit_tiny", "eval", &[2, 3, 224, 224], DType::F32, make);
}

#[test]
fn the_formula_is_the_same_in_both_languages() {
    // the golden files hold what Python made; a wrong formula would fail every model at once, so say it first
    let first: Vec<f64> = formula::unit("conv1.weight", 3).collect();
    assert_eq!(first, EXPECTED);
}

/// `formula.unit("conv1.weight", 3)` in Python.
const EXPECTED: [f64; 3] = [0.0901498794555664, 0.49032342433929443, -0.9541566371917725];
