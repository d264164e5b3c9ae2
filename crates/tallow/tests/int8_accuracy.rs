//! A trained network in 8 bits chooses the classes that it chooses in floats.
//!
//! The 10,000 test images of Fashion-MNIST where the Debian package `dataset-fashion-mnist` is installed, else the 1,000 that are
//! part of Tallow.

use std::path::Path;

use candle_core::{D, DType, Device, Tensor};
use tallow::export::{FreezeOptions, QuantizeOptions, quantize};
use tallow::prelude::*;

const FOLDER: &str = "/usr/share/datasets/fashion-mnist";
const BATCH: usize = 250;

fn classes(logits: &Tensor) -> Vec<u32> {
    logits.argmax(D::Minus1).unwrap().to_vec1().unwrap()
}

#[test]
#[ignore = "trains for half a minute, optimised; `cargo xtask ci --full` runs it"]
fn eight_bits_choose_the_same_classes() {
    let (train, test) = datasets::fashion_mnist_subset().unwrap();
    let stats = train.channel_stats().unwrap();
    let test = match Path::new(FOLDER).is_dir() {
        true => datasets::fashion_mnist::load(FOLDER).unwrap().1,
        false => test,
    };
    let with = |config: LoaderConfig| LoaderConfig {
        normalize: Some(stats.clone()),
        ..config
    };
    let train = train.loader(with(LoaderConfig::train(64))).unwrap();
    let test = test.loader(with(LoaderConfig::eval(BATCH))).unwrap();
    let params = Params::new(42, DType::F32, &Device::Cpu);
    let model = SimpleCifar::new(1, 10, params.builder()).unwrap();
    let mut trainer = Trainer::builder(model, params.clone())
        .optimizer(AdamW::new(0.01))
        .schedule_over_training(LrSchedule::one_cycle)
        .epochs(2)
        .compile(CompileOptions::default())
        .build()
        .unwrap();
    trainer.fit(&train, None).unwrap();

    let calibration: Vec<Tensor> = train
        .epoch(2)
        .unwrap()
        .take(4)
        .map(|b| b.unwrap().images)
        .collect();
    let program = FreezeOptions::new()
        .params(&params)
        .batch_sizes(&[64, BATCH])
        .freeze(trainer.model(), &calibration[0])
        .unwrap();
    let int8 = quantize(&program, &calibration, &QuantizeOptions::new()).unwrap();
    assert_eq!(int8.in_floats, Vec::<String>::new());
    let floats = program.compile(CompileOptions::default()).unwrap();
    let whole = int8.program.compile(CompileOptions::default()).unwrap();
    let (mut same, mut right, mut all) = (0, [0; 2], 0);
    for batch in test.epoch(0).unwrap() {
        let batch = batch.unwrap();
        let labels: Vec<u32> = batch
            .labels
            .to_dtype(DType::U32)
            .unwrap()
            .to_vec1()
            .unwrap();
        let found =
            [&floats, &whole].map(|runner| classes(&runner.forward(&batch.images).unwrap()));
        for (index, label) in labels.iter().enumerate() {
            let [floats, whole] = [0, 1].map(|way| found[way][index]);
            same += usize::from(floats == whole);
            right[0] += usize::from(floats == *label);
            right[1] += usize::from(whole == *label);
            all += 1;
        }
    }
    let percent = |count: usize| 100.0 * count as f64 / all as f64;
    println!(
        "{all} images: {:.2} % the same; {:.2} % right in floats, {:.2} % in 8 bits",
        percent(same),
        percent(right[0]),
        percent(right[1])
    );
    assert!(all >= 1000 && percent(right[0]) > 75.0);
    assert!(percent(same) >= 98.0, "{:.2} %", percent(same));
}
