//! A small model and small data that tests train in an instant.

use candle_core::{Device, Result, Tensor};
use candle_nn::{Linear, Module, ModuleT, VarBuilder};
use tallow_data::Batch;
use tallow_tensor::Params;
use tallow_train::{ProgressDisplay, Trainer, TrainerBuilder};

pub(crate) const CLASSES: usize = 3;
const PIXELS: usize = 16;

/// Two linear layers on the pixels.
pub(crate) struct Toy {
    hidden: Linear,
    head: Linear,
}

impl Toy {
    pub(crate) fn new(width: usize, vb: VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            hidden: candle_nn::linear(PIXELS, width, vb.pp("hidden"))?,
            head: candle_nn::linear(width, CLASSES, vb.pp("head"))?,
        })
    }
}

impl ModuleT for Toy {
    fn forward_t(&self, images: &Tensor, _train: bool) -> Result<Tensor> {
        let hidden = self.hidden.forward(&images.flatten_from(1)?)?.tanh()?;
        self.head.forward(&hidden)
    }
}

/// A toy with its parameters.
pub(crate) fn toy() -> (Toy, Params) {
    toy_of_width(8)
}

pub(crate) fn toy_of_width(width: usize) -> (Toy, Params) {
    let params = Params::f32_cpu();
    let toy = Toy::new(width, params.builder()).unwrap();
    (toy, params)
}

/// The settings of a training of a toy, without output.
pub(crate) fn quiet<M: ModuleT>(model: M, params: Params) -> TrainerBuilder<M> {
    Trainer::builder(model, params).progress(ProgressDisplay::Off)
}

/// `count` batches of 6 images `[1, 4, 4]`; an image's class is the brightest of its first three pixels.
pub(crate) fn batches(count: usize) -> Vec<Batch> {
    (0..count).map(|index| batch(index, 6)).collect()
}

pub(crate) fn batch(index: usize, samples: usize) -> Batch {
    let pixel = |i: usize| (((index * 31 + i + 1) * 2_654_435_761) % 1009) as f32 / 1009.0;
    let pixels: Vec<f32> = (0..samples * PIXELS).map(pixel).collect();
    let labels = pixels.chunks(PIXELS).map(|image| {
        let brightest = (0..CLASSES).max_by(|&a, &b| image[a].total_cmp(&image[b]));
        brightest.unwrap() as u32
    });
    let labels = Tensor::from_iter(labels.collect::<Vec<_>>(), &Device::Cpu).unwrap();
    let images = Tensor::from_vec(pixels, (samples, 1, 4, 4), &Device::Cpu).unwrap();
    Batch::new(images, labels).unwrap()
}

/// The bits of every parameter and buffer, by name.
pub(crate) fn bits(params: &Params) -> Vec<(String, Vec<u32>)> {
    let values = |tensor: &Tensor| {
        let values = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        values.iter().map(|value| value.to_bits()).collect()
    };
    params
        .iter()
        .map(|entry| (entry.name, values(&entry.var)))
        .collect()
}
