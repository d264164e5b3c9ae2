//! Every model gives a complete graph whose parameters and costs are the known ones; a raw candle operation in the middle is a break with a name.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Module, ModuleT, VarBuilder};
use tallow_nn::*;
use tallow_tensor::{Params, capture_model, scope};

/// In evaluation and in training the graph is whole and reads all parameters and buffers. For one `image` it has the
/// parameters that torchvision and timm publish, and the multiply-adds that PyTorch's flop counter finds (convolutions,
/// linear layers, matrix products). `trained` is a smaller image where the model takes one.
fn check<M: ModuleT>(
    make: impl Fn(VarBuilder) -> Result<M>,
    image: [usize; 4],
    trained: [usize; 4],
    params: u64,
    macs: u64,
) {
    let all = Params::f32_cpu();
    let model = make(all.builder()).unwrap();
    for (shape, train) in [(image, false), (trained, true)] {
        let example = Tensor::ones(&shape, DType::F32, &Device::Cpu).unwrap();
        let graph = capture_model(&model, &example, train, Some(&all)).unwrap();
        graph.verify().unwrap();
        assert_eq!(graph.param_count(), params);
        assert_eq!(
            graph.params().count(),
            all.len(),
            "every parameter and buffer is read"
        );
        if shape == image {
            assert_eq!(graph.macs(), macs);
            assert!(
                graph.flops() > 2 * macs,
                "norms and activations cost something too"
            );
        }
    }
}

#[test]
fn lenet5() {
    let make = |vb: VarBuilder| LeNet5::new(10, vb);
    check(make, [1, 1, 28, 28], [1, 1, 28, 28], 61_706, 416_520);
}

#[test]
fn simple_cifar() {
    let make = |vb: VarBuilder| SimpleCifar::new(3, 10, vb);
    check(make, [1, 3, 32, 32], [1, 3, 32, 32], 373_834, 39_520_768);
}

#[test]
fn alexnet() {
    let make = |vb: VarBuilder| AlexNet::new(1000, vb);
    check(
        make,
        [1, 3, 224, 224],
        [1, 3, 64, 64],
        61_100_840,
        714_188_480,
    );
}

#[test]
fn resnet18() {
    let make = |vb: VarBuilder| ResNet::resnet18(1000, Stem::ImageNet, vb);
    check(
        make,
        [1, 3, 224, 224],
        [1, 3, 64, 64],
        11_689_512,
        1_814_073_344,
    );
}

#[test]
fn resnet18_with_cifar_stem() {
    let make = |vb: VarBuilder| ResNet::resnet18(10, Stem::Cifar, vb);
    check(
        make,
        [1, 3, 32, 32],
        [1, 3, 32, 32],
        11_173_962,
        555_422_720,
    );
}

#[test]
fn resnet34() {
    let make = |vb: VarBuilder| ResNet::resnet34(1000, Stem::ImageNet, vb);
    check(
        make,
        [1, 3, 224, 224],
        [1, 3, 64, 64],
        21_797_672,
        3_663_761_408,
    );
}

#[test]
fn resnet50() {
    let make = |vb: VarBuilder| ResNet::resnet50(1000, Stem::ImageNet, vb);
    check(
        make,
        [1, 3, 224, 224],
        [1, 3, 64, 64],
        25_557_032,
        4_089_184_256,
    );
}

#[test]
fn vit_tiny() {
    let make = |vb: VarBuilder| VisionTransformer::tiny(1000, vb);
    check(
        make,
        [1, 3, 224, 224],
        [1, 3, 224, 224],
        5_717_416,
        1_253_683_200,
    );
}

#[test]
fn vit_small() {
    let make = |vb: VarBuilder| VisionTransformer::small(1000, vb);
    check(
        make,
        [1, 3, 224, 224],
        [1, 3, 224, 224],
        22_050_664,
        4_598_882_304,
    );
}

#[test]
fn a_graph_names_the_modules_of_the_model() {
    let params = Params::f32_cpu();
    let model = ResNet::resnet18(10, Stem::ImageNet, params.builder()).unwrap();
    let example = Tensor::ones((1, 3, 64, 64), DType::F32, &Device::Cpu).unwrap();
    let graph = capture_model(&model, &example, false, Some(&params)).unwrap();
    let at = |scope: &str| -> Vec<&str> {
        graph
            .nodes
            .iter()
            .filter(|n| n.scope == scope && !n.inputs.is_empty())
            .map(|n| n.op.name())
            .collect()
    };
    assert_eq!(at("conv1"), ["conv2d"]);
    assert_eq!(at("maxpool"), ["max_pool2d"]);
    assert_eq!(at("layer2.0.downsample.1"), ["batch_norm"]);
    assert_eq!(at("layer1.0"), ["relu", "add", "relu"]);
}

#[test]
fn recurrent_layers_and_embeddings_are_captured_as_well() {
    let params = Params::f32_cpu();
    let config = RecurrentConfig {
        num_layers: 2,
        bidirectional: true,
        ..Default::default()
    };
    let lstm = Lstm::new(3, 4, config, params.builder().pp("lstm")).unwrap();
    let gru = Gru::new(3, 4, config, params.builder().pp("gru")).unwrap();
    let xs = Tensor::ones((5, 2, 3), DType::F32, &Device::Cpu).unwrap();
    for graph in [
        capture_model(&lstm, &xs, true, Some(&params)).unwrap(),
        capture_model(&gru, &xs, true, Some(&params)).unwrap(),
    ] {
        graph.verify().unwrap();
        assert_eq!(graph.params().count(), 2 * 2 * 4);
    }
    let embedding = Embedding::new(10, 4, params.builder().pp("embedding")).unwrap();
    let ids = Tensor::new(&[1u32, 5], &Device::Cpu).unwrap();
    let graph = capture_model(&embedding, &ids, true, Some(&params)).unwrap();
    graph.verify().unwrap();
    assert_eq!(graph.param_count(), 40);
}

/// A model that calls candle's own `relu` between two layers of ours.
struct RawRelu {
    conv: Conv2d,
    fc: Linear,
}

impl ModuleT for RawRelu {
    fn forward_t(&self, xs: &Tensor, _train: bool) -> Result<Tensor> {
        let _scope = scope::enter("raw");
        let xs = self.conv.forward(xs)?.relu()?;
        self.fc.forward(&Flatten.forward(&xs)?)
    }
}

#[test]
fn a_raw_candle_operation_is_a_break_that_names_module_operation_and_remedy() {
    let params = Params::f32_cpu();
    let vb = params.builder().pp("raw");
    let model = RawRelu {
        conv: Conv2d::new(1, 2, 3, Conv2dConfig::default(), vb.pp("conv")).unwrap(),
        fc: Linear::new(2 * 6 * 6, 3, vb.pp("fc")).unwrap(),
    };
    let example = Tensor::ones((1, 1, 8, 8), DType::F32, &Device::Cpu).unwrap();
    assert!(model.forward_t(&example, false).is_ok(), "eagerly it runs");
    let error = capture_model(&model, &example, false, Some(&params))
        .unwrap_err()
        .to_string();
    for part in [
        "in module `raw`",
        "relu of",
        "conv2d in raw.conv",
        "write instead: ops::relu(xs)",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}
