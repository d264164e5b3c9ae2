//! Every layer against numbers from PyTorch: outputs, gradients of inputs and parameters, running statistics; in f32
//! and in f64. Parameters load by PyTorch's names, strictly.

mod reference;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{ModuleT, VarBuilder};
use indexmap::IndexMap;
use tallow_nn::*;
use tallow_tensor::Params;
use tallow_tensor::params::Strict;

use reference::{Case, case};

fn boxed(layer: impl ModuleT + Send + Sync + 'static) -> Result<Layer> {
    Ok(Layer::new(layer))
}

/// Runs `make`'s layer on the stored input with the stored parameters and compares all there is.
fn check(file: &str, name: &str, train: bool, make: impl Fn(VarBuilder) -> Result<Layer>) {
    let case = case(&format!("layers/{file}"), name);
    for dtype in [DType::F32, DType::F64] {
        let params = Params::new(42, dtype, &Device::Cpu);
        let layer = make(params.builder()).expect("construction");
        load(&params, &case);
        let input = Var::from_tensor(&case.get("input").to_dtype(dtype).unwrap()).unwrap();
        let output = layer.forward_t(&input, train).expect("forward");
        case.check("output", &output);
        check_gradients(&case, &output, &input, &params);
        for (buffer, _) in case.all("after") {
            case.check(
                &format!("after.{buffer}"),
                params.get(&buffer).expect("buffer").var.as_tensor(),
            );
        }
    }
}

fn load(params: &Params, case: &Case) {
    let stored: IndexMap<String, Tensor> = case.all("param").into_iter().collect();
    params
        .load_tensors(&stored, Strict::Yes)
        .expect("PyTorch's names and shapes");
}

fn check_gradients(case: &Case, output: &Tensor, input: &Var, params: &Params) {
    let cotangent = case.get("cotangent").to_dtype(output.dtype()).unwrap();
    let loss = (output * cotangent).and_then(|t| t.sum_all()).unwrap();
    let gradients = loss.backward().expect("backward");
    if case.has("input_grad") {
        case.check(
            "input_grad",
            gradients.get(input).expect("the input has a gradient"),
        );
    }
    for (name, _) in case.all("grad") {
        let var = params.get(&name).expect("parameter").var.clone();
        let gradient = gradients
            .get(&var)
            .unwrap_or_else(|| panic!("{}: {name} has no gradient", case.name));
        case.check(&format!("grad.{name}"), gradient);
    }
}

#[test]
fn conv2d_matches_pytorch() {
    let conv = Conv2dConfig::default();
    let check = |name, i, o, kernel: (usize, usize), config| {
        check("conv2d", name, true, |vb| {
            boxed(Conv2d::new(i, o, kernel, config, vb)?)
        });
    };
    check("3x3_padding1", 3, 5, (3, 3), conv.padding(1));
    check(
        "7x7_stride2_padding3_no_bias",
        3,
        4,
        (7, 7),
        conv.stride(2).padding(3).no_bias(),
    );
    check("1x1", 6, 4, (1, 1), conv);
    check("dilation2", 3, 4, (3, 3), conv.dilation(2).padding(2));
    check(
        "groups2_stride2",
        4,
        6,
        (3, 3),
        conv.stride(2).padding(1).groups(2),
    );
    check("depthwise", 6, 6, (3, 3), conv.padding(1).groups(6));
    check(
        "rectangular",
        2,
        3,
        (1, 5),
        conv.stride((1, 2)).padding((0, 2)),
    );
}

#[test]
fn linear_matches_pytorch() {
    check("linear", "matrix", true, |vb| boxed(Linear::new(7, 5, vb)?));
    check("linear", "tokens", true, |vb| boxed(Linear::new(6, 8, vb)?));
    let no_bias = LinearConfig {
        bias: false,
        ..Default::default()
    };
    check("linear", "no_bias", true, |vb| {
        boxed(Linear::from_config(7, 5, no_bias, vb)?)
    });
}

#[test]
fn batch_norm2d_matches_pytorch_in_training_and_evaluation() {
    let other = BatchNormConfig {
        eps: 1e-3,
        momentum: 0.3,
        ..Default::default()
    };
    for (name, train) in [("train", true), ("eval", false)] {
        check("batch_norm2d", name, train, |vb| {
            boxed(BatchNorm2d::new(4, BatchNormConfig::default(), vb)?)
        });
        let case = format!("{name}_eps_momentum");
        check("batch_norm2d", &case, train, |vb| {
            boxed(BatchNorm2d::new(4, other, vb)?)
        });
    }
}

#[test]
fn layer_norm_matches_pytorch() {
    check("layer_norm", "tokens", true, |vb| {
        boxed(LayerNorm::new(8, 1e-5, vb)?)
    });
    check("layer_norm", "eps_1e-6", true, |vb| {
        boxed(LayerNorm::new(8, 1e-6, vb)?)
    });
}

#[test]
fn group_norm_matches_pytorch() {
    check("group_norm", "groups2", true, |vb| {
        boxed(GroupNorm::new(2, 6, 1e-5, vb)?)
    });
    check("group_norm", "groups3_eps", true, |vb| {
        boxed(GroupNorm::new(3, 6, 1e-3, vb)?)
    });
}

#[test]
fn layer_scale_matches_timm() {
    check("layer_scale", "tokens", true, |vb| {
        boxed(LayerScale::new(6, 1e-5, vb)?)
    });
}

#[test]
fn activations_match_pytorch() {
    let rows = [
        ("relu", Activation::Relu),
        ("relu6", Activation::Relu6),
        ("gelu", Activation::Gelu),
        ("gelu_tanh", Activation::GeluTanh),
        ("silu", Activation::Silu),
        ("sigmoid", Activation::Sigmoid),
        ("tanh", Activation::Tanh),
        ("hardswish", Activation::Hardswish),
    ];
    for (name, activation) in rows {
        check("activation", name, true, |_| boxed(activation));
    }
}

#[test]
fn pools_match_pytorch() {
    let (max, avg) = (MaxPool2d::new(3).stride(2), AvgPool2d::new(3).stride(2));
    check("pool", "max_2", true, |_| boxed(MaxPool2d::new(2)));
    check("pool", "max_3_stride2_padding1", true, |_| {
        boxed(max.padding(1))
    });
    check("pool", "max_3_stride2_ceil", true, |_| {
        boxed(max.ceil_mode(true))
    });
    check("pool", "avg_2", true, |_| boxed(AvgPool2d::new(2)));
    check("pool", "avg_3_stride2_padding1", true, |_| {
        boxed(avg.padding(1))
    });
    check("pool", "avg_3_exclude_pad", true, |_| {
        boxed(avg.padding(1).count_include_pad(false))
    });
    check("pool", "avg_3_stride2_ceil", true, |_| {
        boxed(avg.padding(1).ceil_mode(true))
    });
    check("pool", "adaptive_avg_1", true, |_| {
        boxed(AdaptiveAvgPool2d::new(1))
    });
    check("pool", "adaptive_avg_3x5", true, |_| {
        boxed(AdaptiveAvgPool2d::new((3, 5)))
    });
    check("pool", "adaptive_max_3x5", true, |_| {
        boxed(AdaptiveMaxPool2d::new((3, 5)))
    });
}

#[test]
fn conv_norm_act_matches_timm() {
    let relu = ConvNormActConfig::default();
    let relu6 = ConvNormActConfig {
        stride: 2,
        activation: Some(Activation::Relu6),
        ..relu
    };
    let linear = ConvNormActConfig {
        kernel: 1,
        activation: None,
        ..relu
    };
    for (mode, train) in [("train", true), ("eval", false)] {
        let file = "conv_norm_act";
        check(file, &format!("relu_{mode}"), train, |vb| {
            boxed(ConvNormAct::new(3, 8, relu, vb)?)
        });
        check(file, &format!("relu6_stride2_{mode}"), train, |vb| {
            boxed(ConvNormAct::new(3, 8, relu6, vb)?)
        });
        check(file, &format!("no_act_1x1_{mode}"), train, |vb| {
            boxed(ConvNormAct::new(4, 6, linear, vb)?)
        });
    }
}

#[test]
fn residual_blocks_match_torchvision() {
    let one = candle_nn::init::ONE;
    for (mode, train) in [("train", true), ("eval", false)] {
        let (identity, downsample) = (format!("identity_{mode}"), format!("downsample_{mode}"));
        check("basic_block", &identity, train, |vb| {
            boxed(BasicBlock::new(8, 8, 1, one, vb)?)
        });
        check("basic_block", &downsample, train, |vb| {
            boxed(BasicBlock::new(6, 8, 2, one, vb)?)
        });
        check("bottleneck", &identity, train, |vb| {
            boxed(Bottleneck::new(16, 4, 1, one, vb)?)
        });
        check("bottleneck", &downsample, train, |vb| {
            boxed(Bottleneck::new(8, 4, 2, one, vb)?)
        });
    }
}

#[test]
fn patch_embed_matches_timm() {
    let config = PatchEmbedConfig {
        image_size: 8,
        patch_size: 4,
        in_channels: 3,
        embed_dim: 6,
    };
    check("patch_embed", "patch4", true, |vb| {
        boxed(PatchEmbed::new(config, vb)?)
    });
}

#[test]
fn mlp_matches_timm() {
    check("mlp", "gelu", true, |vb| {
        boxed(Mlp::new(6, 12, MlpConfig::default(), vb)?)
    });
}

#[test]
fn attention_matches_timm() {
    let two = AttentionConfig {
        num_heads: 2,
        ..Default::default()
    };
    let no_bias = AttentionConfig {
        num_heads: 4,
        qkv_bias: false,
        ..two
    };
    let qk_norm = AttentionConfig {
        qk_norm: true,
        ..two
    };
    check("attention", "heads2", true, |vb| {
        boxed(Attention::new(8, two, vb)?)
    });
    check("attention", "no_qkv_bias", true, |vb| {
        boxed(Attention::new(8, no_bias, vb)?)
    });
    check("attention", "qk_norm", true, |vb| {
        boxed(Attention::new(8, qk_norm, vb)?)
    });
}

#[test]
fn vit_block_matches_timm() {
    let mut plain = ViTBlockConfig::default();
    plain.attention.num_heads = 2;
    let scaled = ViTBlockConfig {
        mlp_ratio: 2.0,
        layer_scale: Some(1e-5),
        ..plain
    };
    check("vit_block", "plain", true, |vb| {
        boxed(ViTBlock::new(8, plain, vb)?)
    });
    check("vit_block", "layer_scale", true, |vb| {
        boxed(ViTBlock::new(8, scaled, vb)?)
    });
}

#[test]
fn recurrent_layers_match_pytorch() {
    let one = RecurrentConfig::default();
    let rows = [
        ("one_layer", one),
        (
            "two_layers_batch_first",
            RecurrentConfig {
                num_layers: 2,
                batch_first: true,
                ..one
            },
        ),
        (
            "bidirectional_two_layers",
            RecurrentConfig {
                num_layers: 2,
                bidirectional: true,
                ..one
            },
        ),
        ("no_bias", RecurrentConfig { bias: false, ..one }),
    ];
    for (name, config) in rows {
        check("lstm", name, true, |vb| boxed(Lstm::new(5, 4, config, vb)?));
        check("gru", name, true, |vb| boxed(Gru::new(5, 4, config, vb)?));
    }
}

#[test]
fn recurrent_states_match_pytorch_and_carry_on() {
    let config = RecurrentConfig {
        num_layers: 2,
        bidirectional: true,
        ..Default::default()
    };
    let name = "bidirectional_two_layers";
    let (params, gru_params) = (Params::f32_cpu(), Params::f32_cpu());
    let lstm = Lstm::new(5, 4, config, params.builder()).unwrap();
    let stored = case("layers/lstm", name);
    load(&params, &stored);
    let (_, state) = lstm
        .forward_state(stored.get("input"), None, false)
        .unwrap();
    stored.check("state.h_n", &state.h);
    stored.check("state.c_n", &state.c);

    let gru = Gru::new(5, 4, config, gru_params.builder()).unwrap();
    let stored = case("layers/gru", name);
    load(&gru_params, &stored);
    let (_, state) = gru.forward_state(stored.get("input"), None, false).unwrap();
    stored.check("state.h_n", &state);
}

#[test]
fn a_sequence_in_two_halves_gives_what_the_whole_gives() {
    let params = Params::f32_cpu();
    let config = RecurrentConfig {
        num_layers: 2,
        ..Default::default()
    };
    let lstm = Lstm::new(3, 4, config, params.builder().pp("lstm")).unwrap();
    let gru = Gru::new(3, 4, config, params.builder().pp("gru")).unwrap();
    let xs = reference::formula::image("sequence", &[6, 2, 3]).unwrap();
    let halves = [xs.narrow(0, 0, 3).unwrap(), xs.narrow(0, 3, 3).unwrap()];

    let whole = lstm.forward_t(&xs, false).unwrap();
    let (first, state) = lstm.forward_state(&halves[0], None, false).unwrap();
    let (second, _) = lstm.forward_state(&halves[1], Some(&state), false).unwrap();
    assert!(reference::relative_error(&Tensor::cat(&[first, second], 0).unwrap(), &whole) < 1e-6);

    let whole = gru.forward_t(&xs, false).unwrap();
    let (first, state) = gru.forward_state(&halves[0], None, false).unwrap();
    let (second, _) = gru.forward_state(&halves[1], Some(&state), false).unwrap();
    assert!(reference::relative_error(&Tensor::cat(&[first, second], 0).unwrap(), &whole) < 1e-6);
}

#[test]
fn embedding_matches_pytorch() {
    let case = case("layers/embedding", "repeated_ids");
    let params = Params::f32_cpu();
    let embedding = Embedding::new(7, 5, params.builder()).unwrap();
    load(&params, &case);
    let ids = case.get("input").to_dtype(DType::U32).unwrap();
    let output = embedding.forward_t(&ids, true).unwrap();
    case.check("output", &output);
    let loss = (&output * case.get("cotangent"))
        .and_then(|t| t.sum_all())
        .unwrap();
    let gradients = loss.backward().unwrap();
    case.check(
        "grad.weight",
        gradients.get(&params.get("weight").unwrap().var).unwrap(),
    );
}
