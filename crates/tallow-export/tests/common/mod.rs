//! Every model of `tallow-nn` with an input, and comparisons, for the tests beside.

#![allow(dead_code, reason = "each test uses a part")]

use candle_core::{Device, Tensor};
use candle_nn::{ModuleT, VarBuilder};
use tallow_nn::{
    AlexNet, Gru, LeNet5, Lstm, RecurrentConfig, ResNet, SimpleCifar, Stem, VisionTransformer,
    VisionTransformerConfig,
};
use tallow_tensor::Params;
use tallow_tensor::rng::Stream;

/// A model behind one type.
pub(crate) struct Model(Box<dyn ModuleT>);

impl ModuleT for Model {
    fn forward_t(&self, xs: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        self.0.forward_t(xs, train)
    }
}

/// A model to be tested, with an example batch.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) model: Model,
    pub(crate) params: Params,
    pub(crate) example: Tensor,
}

fn case<M: ModuleT + 'static>(
    name: &'static str,
    shape: &[usize],
    make: impl FnOnce(VarBuilder) -> candle_core::Result<M>,
) -> Case {
    let params = Params::f32_cpu();
    let model = Model(Box::new(make(params.builder()).unwrap()));
    stir(&params);
    let example = noise(shape, 11);
    // A model whose output doesn't follow from its input would hide faults.
    let output = |xs: &Tensor| model.forward_t(xs, false).unwrap();
    let reacts = difference(&output(&noise(shape, 12)), &output(&example));
    assert!(reacts > 1e-2, "{name}: {reacts}");
    Case {
        name,
        model,
        params,
        example,
    }
}

/// Each family of models.
pub(crate) fn models() -> Vec<Case> {
    let recurrent = RecurrentConfig {
        batch_first: true,
        ..RecurrentConfig::default()
    };
    vec![
        case("lenet", &[2, 1, 28, 28], |vb| LeNet5::new(10, vb)),
        case("simple_cifar", &[2, 3, 32, 32], |vb| {
            SimpleCifar::new(3, 10, vb)
        }),
        case("alexnet", &[1, 3, 96, 96], |vb| AlexNet::new(10, vb)),
        case("resnet18_cifar", &[2, 3, 32, 32], |vb| {
            ResNet::resnet18(10, Stem::Cifar, vb)
        }),
        case("resnet50", &[1, 3, 64, 64], |vb| {
            ResNet::resnet50(10, Stem::ImageNet, vb)
        }),
        case("vit", &[2, 3, 32, 32], |vb| {
            VisionTransformer::from_config(small_vit(), vb)
        }),
        case("lstm", &[2, 5, 6], move |vb| Lstm::new(6, 8, recurrent, vb)),
        case("gru", &[2, 5, 6], move |vb| Gru::new(6, 8, recurrent, vb)),
    ]
}

/// A vision transformer of two blocks for small images.
pub(crate) fn small_vit() -> VisionTransformerConfig {
    let mut config = VisionTransformerConfig::tiny();
    config.num_classes = 10;
    config.patch_embed.image_size = 32;
    config.patch_embed.patch_size = 8;
    config.depth = 2;
    config
}

/// Gives batch norms and learned tokens something to do.
fn stir(params: &Params) {
    let mut stream = Stream::new(3);
    for entry in params {
        let range = match entry.name.rsplit('.').next() {
            Some("running_mean") => -0.5..0.5,
            Some("running_var") => 0.5..1.5,
            Some("cls_token") => -1.0..1.0,
            _ => continue,
        };
        let spread = range.end - range.start;
        let draw = |_| (range.start + spread * stream.uniform()) as f32;
        let values: Vec<f32> = (0..entry.var.elem_count()).map(draw).collect();
        let values = Tensor::from_vec(values, entry.var.dims(), &Device::Cpu).unwrap();
        entry.var.set(&values).unwrap();
    }
    tallow_tensor::inplace::touch();
}

/// A tensor of normal noise.
pub(crate) fn noise(shape: &[usize], seed: u64) -> Tensor {
    let mut stream = Stream::new(seed);
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| stream.normal() as f32)
        .collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// The largest difference, as a share of the largest value; infinite for a NaN or another shape.
pub(crate) fn difference(found: &Tensor, expected: &Tensor) -> f32 {
    if found.dims() != expected.dims() {
        return f32::INFINITY;
    }
    let values = |t: &Tensor| t.detach().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let (found, expected) = (values(found), values(expected));
    let largest = expected.iter().fold(1e-6f32, |m, v| m.max(v.abs()));
    let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
    worst.fold(
        0f32,
        |m, d| if d.is_nan() { f32::INFINITY } else { m.max(d) },
    ) / largest
}
