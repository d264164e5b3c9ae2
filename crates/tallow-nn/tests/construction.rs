//! A layer asked for with impossible settings is an error that names layer, place, setting, value and remedy.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{ModuleT, VarBuilder};
use tallow_nn::*;
use tallow_tensor::Params;

/// Building fails with a message that has all of `parts`.
fn fails<M>(make: impl FnOnce(VarBuilder) -> Result<M>, parts: &[&str]) {
    let params = Params::f32_cpu();
    let Err(error) = make(params.builder().pp("block.0")) else {
        panic!("built without an error; expected {parts:?}");
    };
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn convolutions() {
    let conv = Conv2dConfig::default();
    let rows: [(usize, usize, usize, Conv2dConfig, &[&str]); 7] = [
        (
            0,
            4,
            3,
            conv,
            &["Conv2d `block.0`", "in_channels is 0", "at least 1"],
        ),
        (3, 0, 3, conv, &["out_channels is 0"]),
        (3, 4, 0, conv, &["kernel is 0"]),
        (3, 4, 3, conv.stride(0), &["stride is 0"]),
        (3, 4, 3, conv.dilation((1, 0)), &["dilation is 0"]),
        (
            3,
            4,
            3,
            conv.groups(2),
            &["in_channels is 3", "a multiple of groups (2)"],
        ),
        (
            4,
            3,
            3,
            conv.groups(2),
            &["out_channels is 3", "a multiple of groups (2)"],
        ),
    ];
    for (i, o, kernel, config, parts) in rows {
        fails(|vb| Conv2d::new(i, o, kernel, config, vb), parts);
    }
    fails(
        |vb| Conv2d::new(3, 4, 3, conv.groups(0), vb),
        &["groups is 0"],
    );
}

#[test]
fn linear_layers_and_tables() {
    fails(
        |vb| Linear::new(0, 4, vb),
        &["Linear `block.0`", "in_features is 0"],
    );
    fails(|vb| Linear::new(4, 0, vb), &["out_features is 0"]);
    fails(
        |vb| Embedding::new(0, 4, vb),
        &["Embedding `block.0`", "num_embeddings is 0"],
    );
}

#[test]
fn norms() {
    let bad_eps = BatchNormConfig {
        eps: -1.0,
        ..Default::default()
    };
    let bad_momentum = BatchNormConfig {
        momentum: 2.0,
        ..Default::default()
    };
    fails(
        |vb| BatchNorm2d::new(0, BatchNormConfig::default(), vb),
        &["BatchNorm2d", "channels is 0"],
    );
    fails(
        |vb| BatchNorm2d::new(4, bad_eps, vb),
        &["eps is -1", "above 0"],
    );
    fails(
        |vb| BatchNorm2d::new(4, bad_momentum, vb),
        &["momentum is 2", "from 0 to 1"],
    );
    fails(
        |vb| LayerNorm::new(8, f64::NAN, vb),
        &["LayerNorm", "eps is NaN"],
    );
    fails(
        |vb| LayerNorm::new((4, 0), 1e-5, vb),
        &["LayerNorm", "is 0"],
    );
    fails(
        |vb| GroupNorm::new(3, 8, 1e-5, vb),
        &["GroupNorm", "channels is 8", "a multiple of groups (3)"],
    );
    fails(|vb| GroupNorm::new(0, 8, 1e-5, vb), &["groups is 0"]);
    fails(
        |vb| LayerScale::new(8, f64::INFINITY, vb),
        &["LayerScale", "init_value is inf"],
    );
}

#[test]
fn dropout() {
    for p in [-0.1, 1.0, 1.5, f64::NAN] {
        fails(|_| Dropout::new(p), &["Dropout", "at least 0 and below 1"]);
        fails(
            |_| DropPath::new(p),
            &["DropPath", "at least 0 and below 1"],
        );
    }
}

#[test]
fn transformer_parts() {
    let heads = |num_heads| AttentionConfig {
        num_heads,
        ..Default::default()
    };
    fails(
        |vb| Attention::new(10, heads(3), vb),
        &[
            "Attention `block.0`",
            "dim is 10",
            "a multiple of num_heads (3)",
        ],
    );
    fails(|vb| Attention::new(10, heads(0), vb), &["num_heads is 0"]);
    let patches = PatchEmbedConfig {
        image_size: 30,
        patch_size: 4,
        ..Default::default()
    };
    fails(
        |vb| PatchEmbed::new(patches, vb),
        &[
            "PatchEmbed",
            "image_size is 30",
            "a multiple of patch_size (4)",
        ],
    );
    let thin = ViTBlockConfig {
        mlp_ratio: 0.0,
        ..Default::default()
    };
    fails(
        |vb| ViTBlock::new(8, thin, vb),
        &["ViTBlock", "mlp_ratio is 0"],
    );
}

#[test]
fn recurrent_layers() {
    let none = RecurrentConfig {
        num_layers: 0,
        ..Default::default()
    };
    fails(
        |vb| Lstm::new(3, 4, none, vb),
        &["Lstm `block.0`", "num_layers is 0"],
    );
    fails(
        |vb| Gru::new(3, 0, RecurrentConfig::default(), vb),
        &["Gru", "hidden_size is 0"],
    );
}

#[test]
fn models() {
    fails(
        |vb| ResNet::resnet18(0, Stem::Cifar, vb),
        &["ResNet `block.0`", "num_classes is 0"],
    );
    let shallow = ResNetConfig {
        depths: [2, 0, 2, 2],
        ..ResNetConfig::resnet18()
    };
    fails(|vb| ResNet::from_config(shallow, vb), &["depths is 0"]);
    fails(
        |vb| SimpleCifar::new(0, 10, vb),
        &["Conv2d `block.0.features.0.conv`", "in_channels is 0"],
    );
    fails(
        |vb| {
            LeNet5::from_config(
                LeNet5Config {
                    image_size: 8,
                    ..Default::default()
                },
                vb,
            )
        },
        &["LeNet5", "image_size"],
    );
    fails(
        |vb| VisionTransformer::tiny(0, vb),
        &["VisionTransformer", "num_classes is 0"],
    );
    let wet = AlexNetConfig {
        dropout: 2.0,
        ..Default::default()
    };
    fails(|vb| AlexNet::from_config(wet, vb), &["Dropout", "p is 2"]);
}

#[test]
fn a_vit_names_the_image_size_that_it_was_built_for() {
    let params = Params::f32_cpu();
    let model = VisionTransformer::tiny(10, params.builder()).unwrap();
    let images = Tensor::zeros((1, 3, 32, 32), DType::F32, &Device::Cpu).unwrap();
    let error = model.forward_t(&images, false).unwrap_err().to_string();
    for part in [
        "PatchEmbed `patch_embed`",
        "[1, 3, 32, 32]",
        "[N, 3, 224, 224]",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}

#[test]
fn an_input_of_other_channels_names_module_operation_and_shapes() {
    let params = Params::f32_cpu();
    let model = ResNet::resnet18(10, Stem::Cifar, params.builder()).unwrap();
    let images = Tensor::zeros((1, 1, 28, 28), DType::F32, &Device::Cpu).unwrap();
    let error = model.forward_t(&images, false).unwrap_err().to_string();
    for part in ["conv1", "conv2d", "[1, 1, 28, 28]", "[64, 3, 3, 3]"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}

#[test]
fn sequences_of_another_width_or_state_name_the_expected_shape() {
    let params = Params::f32_cpu();
    let lstm = Lstm::new(
        3,
        4,
        RecurrentConfig::default(),
        params.builder().pp("lstm"),
    )
    .unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let error = lstm
        .forward_t(&zeros(&[5, 2, 7]), false)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("Lstm `lstm`") && error.contains("[L, N, 3]"),
        "{error}"
    );
    let state = LstmState {
        h: zeros(&[1, 9, 4]),
        c: zeros(&[1, 9, 4]),
    };
    let error = lstm
        .forward_state(&zeros(&[5, 2, 3]), Some(&state), false)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("[1, 9, 4]") && error.contains("[1, 2, 4]"),
        "{error}"
    );
}
