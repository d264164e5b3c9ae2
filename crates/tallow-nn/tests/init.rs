//! Initial values follow PyTorch's rules: bounds, means and standard deviations.

mod reference;

use candle_core::Result;
use candle_nn::VarBuilder;
use tallow_nn::*;
use tallow_tensor::Params;

fn built<M>(make: impl FnOnce(VarBuilder) -> Result<M>) -> Params {
    let params = Params::f32_cpu();
    make(params.builder()).unwrap();
    params
}

fn values(params: &Params, name: &str) -> Vec<f64> {
    reference::values(
        params
            .get(name)
            .unwrap_or_else(|| panic!("no {name}"))
            .var
            .as_tensor(),
    )
}

fn values_of<M>(name: &str, make: impl FnOnce(VarBuilder) -> Result<M>) -> Vec<f64> {
    values(&built(make), name)
}

fn mean_and_std(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (
        mean,
        (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt(),
    )
}

/// Mean zero and this standard deviation, within the scatter of the sample (five standard errors).
fn check_spread(what: &str, values: &[f64], std: f64) {
    let (mean, found) = mean_and_std(values);
    let scatter = 5.0 / (values.len() as f64).sqrt();
    assert!(mean.abs() < scatter * std, "{what}: mean {mean}");
    assert!(
        (found / std - 1.0).abs() < scatter,
        "{what}: standard deviation {found}, should be {std}"
    );
}

fn check_uniform(what: &str, values: &[f64], bound: f64) {
    let largest = values.iter().fold(0f64, |m, v| m.max(v.abs()));
    assert!(
        largest <= bound && largest > 0.98 * bound,
        "{what}: up to {largest}, bound {bound}"
    );
    check_spread(what, values, bound / 3f64.sqrt());
}

#[test]
fn conv_and_linear_are_uniform_by_fan_in() {
    let conv = |vb: VarBuilder| Conv2d::new(16, 64, 3, Conv2dConfig::default().groups(2), vb);
    check_uniform(
        "conv weight",
        &values_of("weight", conv),
        1.0 / 72f64.sqrt(),
    );
    check_uniform(
        "conv bias",
        &values_of("bias", |vb| {
            Conv2d::new(1, 512, 4, Conv2dConfig::default(), vb)
        }),
        0.25,
    );
    check_uniform(
        "linear weight",
        &values_of("weight", |vb| Linear::new(100, 50, vb)),
        0.1,
    );
    check_uniform(
        "linear bias",
        &values_of("bias", |vb| Linear::new(100, 500, vb)),
        0.1,
    );
}

#[test]
fn recurrent_weights_are_uniform_by_hidden_size() {
    let config = RecurrentConfig::default();
    check_uniform(
        "lstm",
        &values_of("weight_ih_l0", |vb| Lstm::new(9, 64, config, vb)),
        0.125,
    );
    check_uniform(
        "gru",
        &values_of("bias_hh_l0", |vb| Gru::new(9, 256, config, vb)),
        0.0625,
    );
}

#[test]
fn embeddings_are_standard_normal() {
    check_spread(
        "embedding",
        &values_of("weight", |vb| Embedding::new(100, 64, vb)),
        1.0,
    );
}

#[test]
fn norms_start_as_the_identity() {
    let norm = |vb: VarBuilder| BatchNorm2d::new(4, BatchNormConfig::default(), vb);
    for (name, value) in [
        ("weight", 1.0),
        ("bias", 0.0),
        ("running_mean", 0.0),
        ("running_var", 1.0),
    ] {
        assert_eq!(values_of(name, norm), [value; 4], "{name}");
    }
    assert_eq!(
        values_of("weight", |vb| LayerNorm::new(4, 1e-5, vb)),
        [1.0; 4]
    );
    assert_eq!(
        values_of("bias", |vb| GroupNorm::new(2, 4, 1e-5, vb)),
        [0.0; 4]
    );
    let scale = values_of("gamma", |vb| LayerScale::new(3, 0.25, vb));
    assert_eq!(scale, [0.25; 3]);
}

#[test]
fn resnets_are_kaiming_normal_by_fan_out() {
    let resnet = built(|vb| ResNet::resnet18(10, Stem::ImageNet, vb));
    check_spread(
        "stem",
        &values(&resnet, "conv1.weight"),
        (2.0 / (64.0 * 49.0f64)).sqrt(),
    );
    check_spread(
        "3x3",
        &values(&resnet, "layer3.0.conv1.weight"),
        (2.0 / (256.0 * 9.0f64)).sqrt(),
    );
    check_spread(
        "1x1",
        &values(&resnet, "layer3.0.downsample.0.weight"),
        (2.0 / 256f64).sqrt(),
    );
    check_uniform("fc", &values(&resnet, "fc.weight"), 1.0 / 512f64.sqrt());
}

#[test]
fn zero_init_residual_starts_each_block_as_its_shortcut() {
    for (block, last) in [
        (ResNetConfig::resnet18(), "bn2"),
        (ResNetConfig::resnet50(), "bn3"),
    ] {
        for (zero, expected) in [(true, 0.0), (false, 1.0)] {
            let config = ResNetConfig {
                zero_init_residual: zero,
                depths: [1; 4],
                ..block
            };
            let weight = values_of(&format!("layer1.0.{last}.weight"), |vb| {
                ResNet::from_config(config, vb)
            });
            assert!(
                weight.iter().all(|w| *w == expected),
                "{last} with zero_init_residual {zero}"
            );
        }
    }
}

#[test]
fn vits_are_normal_with_002_and_zero_biases() {
    let vit = built(|vb| VisionTransformer::tiny(10, vb));
    check_spread("qkv", &values(&vit, "blocks.3.attn.qkv.weight"), 0.02);
    check_spread("mlp", &values(&vit, "blocks.0.mlp.fc2.weight"), 0.02);
    check_spread("positions", &values(&vit, "pos_embed"), 0.02);
    check_spread("class token", &values(&vit, "cls_token"), 1e-6);
    check_uniform(
        "patches",
        &values(&vit, "patch_embed.proj.weight"),
        1.0 / 768f64.sqrt(),
    );
    assert!(
        values(&vit, "blocks.3.attn.proj.bias")
            .iter()
            .all(|b| *b == 0.0)
    );
    assert!(values(&vit, "head.bias").iter().all(|b| *b == 0.0));
}

#[test]
fn initial_values_depend_on_seed_and_name_alone() {
    let values = |seed, first: &str| {
        let params = Params::new(seed, candle_core::DType::F32, &candle_core::Device::Cpu);
        for name in [first, "a", "b"] {
            Linear::new(3, 4, params.builder().pp(name)).unwrap();
        }
        reference::values(params.get("b.weight").unwrap().var.as_tensor())
    };
    assert_eq!(values(42, "a"), values(42, "b"));
    assert_ne!(values(42, "a"), values(43, "a"));
}
