//! How many pictures a second are decoded and transformed, on one thread: `cargo bench --bench transforms`.
//!
//! `TALLOW_BENCH_JPEG` names the JPEG file to decode (ImageNet's are about 500x375); without it, decoding is left out.

#![allow(missing_docs, reason = "criterion_group! makes a function without any")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tallow_data::decode::{self, DecodeOptions};
use tallow_data::transform::pipeline;
use tallow_data::{Image, Normalize};
use tallow_tensor::rng::Stream;

fn imagenet() -> Normalize {
    Normalize {
        mean: vec![0.485, 0.456, 0.406],
        std: vec![0.229, 0.224, 0.225],
    }
}

fn picture(size: [usize; 2]) -> Image {
    let values = (0..size[0] * size[1] * 3).map(|i| (i % 253) as u8);
    Image::new(values.collect(), size, 3).expect("a value for each place")
}

fn cifar(c: &mut Criterion) {
    let mut group = c.benchmark_group("cifar");
    group.throughput(Throughput::Elements(1));
    let train = pipeline()
        .random_crop(32, 4)
        .random_horizontal_flip(0.5)
        .to_tensor()
        .normalize(imagenet());
    let image = picture([32, 32]);
    let mut draw = Stream::new(1);
    group.bench_function("crop-flip-tensor-normalize", |b| {
        b.iter_batched(
            || image.clone(),
            |image| black_box(train.apply(image, &mut draw).expect("a crop that fits")),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn photograph(c: &mut Criterion) {
    let mut group = c.benchmark_group("photograph");
    group.throughput(Throughput::Elements(1));
    let eval = pipeline()
        .resize(256)
        .center_crop(224)
        .to_tensor()
        .normalize(imagenet());
    let image = picture([375, 500]);
    group.bench_function("resize-crop-tensor-normalize", |b| {
        b.iter_batched(
            || image.clone(),
            |image| {
                black_box(
                    eval.apply(image, &mut Stream::new(0))
                        .expect("a crop that fits"),
                )
            },
            BatchSize::LargeInput,
        );
    });
    if let Some(path) = std::env::var_os("TALLOW_BENCH_JPEG") {
        let bytes = std::fs::read(path).expect("TALLOW_BENCH_JPEG names a file");
        let options = DecodeOptions::rgb();
        group.bench_function("decode", |b| {
            b.iter(|| black_box(decode::decode(&bytes, &options).expect("a JPEG file")));
        });
        group.bench_function("decode-resize-crop-tensor-normalize", |b| {
            b.iter(|| {
                let image = decode::decode(&bytes, &options).expect("a JPEG file");
                black_box(
                    eval.apply(image, &mut Stream::new(0))
                        .expect("a crop that fits"),
                )
            });
        });
    }
    group.finish();
}

criterion_group!(benches, cifar, photograph);
criterion_main!(benches);
