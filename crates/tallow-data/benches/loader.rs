//! How many images a second the loader makes ready, on one thread: `cargo bench -p tallow-data`.

#![allow(missing_docs, reason = "criterion_group! makes a function without any")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tallow_data::{Augment, BatchSource, ImageDataset, LoaderConfig, Normalize};

const IMAGES: usize = 8_192;

fn dataset(shape: [usize; 3]) -> ImageDataset {
    let size: usize = shape.iter().product();
    let pixels = (0..IMAGES * size).map(|i| (i % 253) as u8).collect();
    let labels = (0..IMAGES as u32).map(|i| i % 10).collect();
    ImageDataset::new(pixels, shape, labels, (0..10).map(|i| i.to_string()))
        .expect("labels below 10")
}

fn epochs(c: &mut Criterion) {
    let mut group = c.benchmark_group("loader");
    group.throughput(Throughput::Elements(IMAGES as u64));
    for shape in [[1, 28, 28], [3, 32, 32]] {
        let data = dataset(shape);
        for (name, augment) in [
            ("plain", Augment::NONE),
            ("flip-and-crop", Augment::flip_and_crop(4)),
        ] {
            let config = LoaderConfig {
                augment,
                normalize: Some(Normalize::all(0.29, 0.35)),
                ..LoaderConfig::train(128)
            };
            let loader = data.loader(config).expect("a batch fits");
            let [channels, height, width] = shape;
            group.bench_function(format!("{channels}x{height}x{width}/{name}"), |b| {
                b.iter(|| {
                    for batch in loader.epoch(0).expect("an epoch") {
                        black_box(batch.expect("a batch"));
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, epochs);
criterion_main!(benches);
