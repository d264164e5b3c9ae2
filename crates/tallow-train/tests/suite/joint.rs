//! A small network with batch norm, made-up images, and a training of it by one rank or several.

use std::sync::Arc;

use candle_core::Tensor;
use candle_nn::{Module, ModuleT};
use tallow_data::{Augment, ImageDataset, Loader, LoaderConfig, Shard};
use tallow_nn::{Activation, ConvNormAct, ConvNormActConfig, Linear};
use tallow_tensor::{Params, ops};
use tallow_train::distributed::Collective;
use tallow_train::{History, ProgressDisplay, Result, Sgd, Trainer, TrainerBuilder};

pub(crate) const CLASSES: usize = 4;
const SIDE: usize = 8;

/// A convolution with batch norm, the mean of each channel, and a linear layer.
pub(crate) struct Small {
    features: ConvNormAct,
    head: Linear,
}

impl Small {
    pub(crate) fn new(params: &Params) -> Self {
        Self::of_width(8, params)
    }

    pub(crate) fn of_width(width: usize, params: &Params) -> Self {
        let vb = params.builder();
        let config = ConvNormActConfig {
            stride: 2,
            activation: Some(Activation::Relu),
            ..Default::default()
        };
        Self {
            features: ConvNormAct::new(1, width, config, vb.pp("features")).unwrap(),
            head: Linear::new(width, CLASSES, vb.pp("head")).unwrap(),
        }
    }
}

impl ModuleT for Small {
    fn forward_t(&self, images: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let features = self.features.forward_t(images, train)?;
        let features = ops::adaptive_avg_pool2d(&features, [1, 1])?;
        self.head.forward(&ops::flatten(&features, 1)?)
    }
}

/// Images `[1, 8, 8]` of stripes; the class is their direction and width.
pub(crate) fn images(count: usize) -> ImageDataset {
    let pixel = |sample: usize, place: usize| {
        let (class, row, column) = (sample % CLASSES, place / SIDE, place % SIDE);
        let along = if class % 2 == 0 { row } else { column };
        let stripe = along / (1 + class / 2) % 2;
        let noise = (sample * 64 + place + 1).wrapping_mul(2_654_435_761) >> 7;
        (100 * stripe + noise % 120) as u8
    };
    let places = SIDE * SIDE;
    let pixels = (0..count * places).map(|i| pixel(i / places, i % places));
    let labels = (0..count).map(|sample| (sample % CLASSES) as u32);
    let names = ["rows", "columns", "wide rows", "wide columns"];
    ImageDataset::new(pixels.collect(), [1, SIDE, SIDE], labels.collect(), names).unwrap()
}

/// Batches of `total` images over all ranks, in another order in each epoch, mirrored and shifted at random.
pub(crate) fn training(data: &ImageDataset, total: usize, shard: Shard) -> Loader {
    let config = LoaderConfig {
        shard,
        normalize: Some(data.channel_stats().unwrap()),
        augment: Augment::flip_and_crop(1),
        ..LoaderConfig::train(total / shard.of)
    };
    data.loader(config).unwrap()
}

/// All images in order, in batches that don't come out even.
pub(crate) fn evaluation(data: &ImageDataset, shard: Shard) -> Loader {
    let config = LoaderConfig {
        shard,
        normalize: Some(data.channel_stats().unwrap()),
        ..LoaderConfig::eval(30)
    };
    data.loader(config).unwrap()
}

/// What a training comes to.
pub(crate) struct Run {
    /// Every parameter and buffer.
    pub(crate) values: Vec<(String, Vec<f32>)>,
    pub(crate) history: History,
}

impl Run {
    /// Twenty steps on 128 images each, over all ranks, and an evaluation.
    pub(crate) fn new<M: ModuleT>(
        ranks: Option<Arc<dyn Collective>>,
        model: impl FnOnce(&Params) -> M,
        settings: impl FnOnce(TrainerBuilder<M>) -> TrainerBuilder<M>,
    ) -> Result<Self> {
        let shard = ranks.as_ref().map_or(Shard::WHOLE, |ranks| ranks.shard());
        let params = Params::f32_cpu();
        let builder = Trainer::builder(model(&params), params.clone())
            .optimizer(Sgd::new(0.02).momentum(0.9).weight_decay(1e-4))
            .progress(ProgressDisplay::Off)
            .epochs(2);
        let builder = match ranks {
            Some(ranks) => builder.distributed(ranks),
            None => builder,
        };
        let mut trainer = settings(builder).build()?;
        let train = training(&images(1300), 128, shard);
        let held_out = evaluation(&images(131), shard);
        let history = trainer.fit(&train, Some(&held_out))?;
        Ok(Self {
            values: values(&params),
            history,
        })
    }

    /// The largest difference of two values that should be the same.
    pub(crate) fn difference(&self, other: &Self) -> f32 {
        let mut largest = 0f32;
        for ((name, values), (other_name, others)) in self.values.iter().zip(&other.values) {
            assert_eq!((name, values.len()), (other_name, others.len()));
            for (value, other) in values.iter().zip(others) {
                largest = largest.max((value - other).abs());
            }
        }
        largest
    }

    /// What the epochs measured: samples, losses, accuracies.
    pub(crate) fn measured(&self) -> Vec<f64> {
        let of_epoch = |epoch: &tallow_train::EpochRecord| {
            let mut all = vec![epoch.steps as f64];
            for metrics in [Some(&epoch.train), epoch.evaluation.as_ref()] {
                let metrics = metrics.unwrap();
                all.extend([metrics.samples as f64, metrics.loss, metrics.accuracy]);
            }
            all
        };
        self.history.epochs.iter().flat_map(of_epoch).collect()
    }

    /// Panics unless the other training came to the same, but for rounding.
    pub(crate) fn assert_equals(&self, other: &Self, what: &str) {
        let difference = self.difference(other);
        assert!(
            difference <= 1e-5,
            "{what}: parameters differ by {difference}"
        );
        for (ours, theirs) in self.measured().iter().zip(other.measured()) {
            assert!((ours - theirs).abs() <= 1e-5, "{what}: {ours} and {theirs}");
        }
    }
}

pub(crate) fn values(params: &Params) -> Vec<(String, Vec<f32>)> {
    let values = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
    params
        .iter()
        .map(|entry| (entry.name, values(&entry.var).unwrap()))
        .collect()
}
