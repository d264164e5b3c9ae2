//! FLOPs are those of a count by hand.

use candle_core::Tensor;
use candle_nn::ModuleT;
use tallow_compile::{Options, compile};
use tallow_nn::{ResNet, SimpleCifar, Stem};
use tallow_profile::{Grouping, Profile};

use crate::{images, params, record, turn};

/// Two operations a multiply-add: output pixels, output channels, taps of all input channels.
fn conv(pixels: u64, input: u64, output: u64, kernel: u64) -> u64 {
    2 * pixels * output * input * kernel
}

/// ResNet-18 with the CIFAR stem on one image of 32 x 32, convolutions alone.
fn resnet18() -> u64 {
    let stem = conv(32 * 32, 3, 64, 9);
    let first = 4 * conv(32 * 32, 64, 64, 9);
    let stage = |side: u64, channels: u64| {
        let pixels = side * side;
        conv(pixels, channels / 2, channels, 9)
            + 3 * conv(pixels, channels, channels, 9)
            + conv(pixels, channels / 2, channels, 1)
    };
    stem + first + stage(16, 128) + stage(8, 256) + stage(4, 512)
}

/// SimpleCifar on one image of 32 x 32, convolutions alone.
fn simple_cifar() -> u64 {
    conv(32 * 32, 3, 64, 9) + conv(16 * 16, 64, 128, 9) + conv(8 * 8, 128, 256, 9)
}

/// The linear layer, with its bias.
fn linear(input: u64, classes: u64) -> u64 {
    2 * input * classes + classes
}

fn flops(profile: &Profile, operation: &str) -> u64 {
    let table = profile.table(Grouping::Operation);
    table.row(operation).map_or(0, |row| row.flops)
}

#[test]
fn the_hand_count_is_that_of_the_books() {
    let _turn = turn();
    // 0.56 G multiply-adds, 1.11 GFLOP.
    assert_eq!(resnet18(), 1_110_835_200);
}

#[test]
fn forward_passes_cost_what_a_count_by_hand_gives() {
    let _turn = turn();
    let inference = |model: &dyn ModuleT, batch: usize| {
        let x = images((batch, 3, 32, 32));
        record(|| drop::<Tensor>(model.forward_t(&x, false).unwrap()))
    };
    let resnet = ResNet::resnet18(10, Stem::Cifar, params().builder()).unwrap();
    let profile = inference(&resnet, 1);
    assert_eq!(flops(&profile, "conv2d"), resnet18());
    assert_eq!(flops(&profile, "linear"), linear(512, 10));

    let simple = SimpleCifar::new(3, 10, params().builder()).unwrap();
    let profile = inference(&simple, 2);
    assert_eq!(flops(&profile, "conv2d"), 2 * simple_cifar());
    assert_eq!(flops(&profile, "linear"), 2 * linear(256, 10));
}

#[test]
fn a_backward_pass_costs_two_products_for_each_but_the_first_layer() {
    let _turn = turn();
    let model = SimpleCifar::new(3, 10, params().builder()).unwrap();
    let x = images((2, 3, 32, 32));
    let profile = record(|| {
        let loss = model.forward_t(&x, true).unwrap().sqr().unwrap();
        loss.sum_all().unwrap().backward().unwrap();
    });
    // The images need no gradient.
    let first = conv(32 * 32, 3, 64, 9);
    let expected = 2 * (2 * simple_cifar() - first);
    assert_eq!(flops(&profile, "conv2d_backward"), expected);
}

#[test]
fn compiled_convolutions_cost_as_much_and_what_is_fused_into_them() {
    let _turn = turn();
    let model = ResNet::resnet18(10, Stem::Cifar, params().builder()).unwrap();
    let x = images((1, 3, 32, 32));
    let compiled = compile(&model, &x, Options::default()).unwrap();
    let profile = record(|| drop::<Tensor>(compiled.forward(&x).unwrap()));
    let kernels = profile.spans.iter().filter(|span| span.name == "kernel");
    let convolutions = kernels.filter(|span| span.label().contains("conv2d"));
    let found: u64 = convolutions.map(|span| span.flops).sum();
    // Bias, addition and ReLU: a few operations an output element, 576 or more a convolution's.
    assert!(
        (resnet18()..resnet18() * 102 / 100).contains(&found),
        "{found}"
    );
}
