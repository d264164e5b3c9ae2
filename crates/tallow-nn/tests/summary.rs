//! The summary table: its text for a small model, and its numbers for others.

use candle_core::{DType, Device, Tensor};
use tallow_nn::*;
use tallow_tensor::Params;

#[test]
fn the_table_of_simple_cifar() {
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let text = summary(&model, &[1, 3, 32, 32]).unwrap().to_string();
    assert_eq!(text, TABLE.trim_matches('\n'), "\n{text}");
}

const TABLE: &str = "
Layer (operations)          Output shape      Parameters        MACs
────────────────────────────────────────────────────────────────────
features.0.conv (conv2d)    [1, 64, 32, 32]        1,728   1,769,472
features.0.bn (batch_norm)  [1, 64, 32, 32]          128           -
features.0 (relu6)          [1, 64, 32, 32]            -           -
features.1.conv (conv2d)    [1, 128, 16, 16]      73,728  18,874,368
features.1.bn (batch_norm)  [1, 128, 16, 16]         256           -
features.1 (relu6)          [1, 128, 16, 16]           -           -
features.2.conv (conv2d)    [1, 256, 8, 8]       294,912  18,874,368
features.2.bn (batch_norm)  [1, 256, 8, 8]           512           -
features.2 (relu6)          [1, 256, 8, 8]             -           -
(adaptive_avg_pool2d)       [1, 256]                   -           -
fc (linear)                 [1, 10]                2,570       2,560
────────────────────────────────────────────────────────────────────
Parameters: 373,834 (373,834 trainable), and 896 in buffers
Multiply-adds: 39,520,768 for [1, 3, 32, 32]
Memory: parameters 1.43 MiB, outputs of all layers 1.31 MiB
";

#[test]
fn totals_of_resnet18() {
    let params = Params::f32_cpu();
    let model = ResNet::resnet18(1000, Stem::ImageNet, params.builder()).unwrap();
    let table = summary(&model, &[1, 3, 224, 224]).unwrap();
    assert_eq!(table.params, 11_689_512);
    assert_eq!(table.trainable, 11_689_512);
    assert_eq!(table.buffers, 9_600);
    assert_eq!(table.macs, 1_814_073_344);
    assert_eq!(table.param_bytes, 4 * 11_689_512);
    assert_eq!(
        table.rows.iter().map(|row| row.params).sum::<u64>(),
        table.params
    );
    assert_eq!(
        table.rows.iter().map(|row| row.macs).sum::<u64>(),
        table.macs
    );
    let stem = &table.rows[0];
    assert_eq!(
        (stem.path.as_str(), stem.operations.as_slice()),
        ("conv1", ["conv2d"].as_slice())
    );
    assert_eq!(
        (stem.output.as_slice(), stem.params),
        ([1, 64, 112, 112].as_slice(), 9_408)
    );
}

#[test]
fn frozen_parameters_are_told_from_trainable_ones() {
    let params = Params::f32_cpu();
    let model = LeNet5::new(10, params.builder()).unwrap();
    params.freeze("conv1");
    let example = Tensor::zeros((1, 1, 28, 28), DType::F32, &Device::Cpu).unwrap();
    let table = summary_of(&model, &example, Some(&params)).unwrap();
    assert_eq!((table.params, table.trainable), (61_706, 61_706 - 156));
}

#[test]
fn a_shape_that_the_model_cannot_take_is_the_models_error() {
    let params = Params::f32_cpu();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let error = summary(&model, &[1, 1, 32, 32]).unwrap_err().to_string();
    assert!(
        error.contains("features.0.conv") && error.contains("conv2d"),
        "{error}"
    );
}
