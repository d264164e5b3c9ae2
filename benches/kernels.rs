//! Single operations under criterion: the convolutions of cases A and B, GEMM, batch norm, activations.
//!
//! `cargo xtask bench --kernels` runs it and prints a JSON line a figure.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use tallow::kernels::activation::{self, Activation};
use tallow::kernels::conv::{self, Conv2dGeometry};
use tallow::kernels::gemm::{GemmArgs, gemm};
use tallow::kernels::workspace::Workspace;
use tallow::kernels::{ChannelShape, norm};
use tallow::tensor::rng::Stream;

fn normal(len: usize, key: u64) -> Vec<f32> {
    let mut stream = Stream::new(key);
    (0..len).map(|_| stream.normal() as f32).collect()
}

/// Layers of `[C, size, size]` to `O` channels, batch 32: name, C, O, size, kernel, stride.
const CONVOLUTIONS: [(&str, usize, usize, usize, usize, usize); 7] = [
    ("conv3x3 3->64@32", 3, 64, 32, 3, 1),
    ("conv3x3 64->64@32", 64, 64, 32, 3, 1),
    ("conv3x3/2 64->128@32", 64, 128, 32, 3, 2),
    ("conv3x3 256->256@8", 256, 256, 8, 3, 1),
    ("conv3x3 512->512@4", 512, 512, 4, 3, 1),
    ("conv1x1/2 64->128@32", 64, 128, 32, 1, 2),
    ("conv7x7/2 3->64@224", 3, 64, 224, 7, 2),
];

fn convolutions(c: &mut Criterion) {
    for (name, input, output, size, kernel, stride) in CONVOLUTIONS {
        let padding = kernel / 2;
        let batch = if size > 100 { 8 } else { 32 };
        let geometry = Conv2dGeometry::new(
            batch,
            input,
            [size; 2],
            output,
            [kernel; 2],
            [stride; 2],
            [padding; 2],
            [1; 2],
            1,
        )
        .expect("the bench's own geometry");
        let [height, width] = geometry.out_size();
        let x = normal(batch * input * size * size, 1);
        let w = normal(output * input * kernel * kernel, 2);
        let dy = normal(batch * output * height * width, 3);
        let (mut y, mut dx, mut dw) = (dy.clone(), x.clone(), w.clone());
        let scratch = Workspace::global();
        let mut group = c.benchmark_group(name);
        let flops = 2 * batch * output * height * width * input * kernel * kernel;
        group.throughput(Throughput::Elements(flops as u64));
        group.bench_function(BenchmarkId::from_parameter("forward"), |b| {
            b.iter(|| conv::forward(&geometry, &x, &w, None, black_box(&mut y), scratch));
        });
        group.bench_function(BenchmarkId::from_parameter("backward_input"), |b| {
            b.iter(|| conv::backward_input(&geometry, &w, &dy, black_box(&mut dx), scratch));
        });
        group.bench_function(BenchmarkId::from_parameter("backward_weight"), |b| {
            b.iter(|| conv::backward_weight(&geometry, &x, &dy, black_box(&mut dw), scratch));
        });
        group.finish();
    }
}

fn products(c: &mut Criterion) {
    let n = 1024;
    let (a, b, mut y) = (normal(n * n, 1), normal(n * n, 2), vec![0.0; n * n]);
    let mut group = c.benchmark_group("gemm 1024");
    group.throughput(Throughput::Elements(2 * (n * n * n) as u64));
    group.bench_function("forward", |bench| {
        bench.iter(|| {
            gemm(GemmArgs {
                m: n,
                n,
                k: n,
                a: &a,
                a_rs: n,
                a_cs: 1,
                b: &b,
                b_rs: n,
                b_cs: 1,
                c: black_box(&mut y),
                c_rs: n,
                c_cs: 1,
                alpha: 1.0,
                beta: 0.0,
            })
        });
    });
    group.finish();
}

fn passes(c: &mut Criterion) {
    let (batch, channels, spatial) = (32, 64, 32 * 32);
    let shape = ChannelShape {
        batch,
        channels,
        spatial,
    };
    let len = batch * channels * spatial;
    let (x, dy, mut y) = (normal(len, 1), normal(len, 2), vec![0.0; len]);
    let (gamma, beta) = (vec![1.0; channels], vec![0.0; channels]);
    let (mut mean, mut invstd, mut var) = (beta.clone(), beta.clone(), beta.clone());
    let (mut dgamma, mut dbeta) = (beta.clone(), beta.clone());
    let mut group = c.benchmark_group("batch_norm 64@32");
    group.bench_function("forward", |b| {
        b.iter(|| {
            norm::batch_norm_train(
                &shape,
                &x,
                &gamma,
                &beta,
                1e-5,
                black_box(&mut y),
                &mut mean,
                &mut invstd,
                &mut var,
            )
        });
    });
    group.bench_function("backward", |b| {
        b.iter(|| {
            norm::batch_norm_backward(
                &shape,
                &x,
                &dy,
                &gamma,
                &mean,
                &invstd,
                black_box(&mut y),
                &mut dgamma,
                &mut dbeta,
            )
        });
    });
    group.finish();
    for (name, act) in [("relu6", Activation::Relu6), ("gelu", Activation::Gelu)] {
        let mut group = c.benchmark_group(format!("{name} 64@32"));
        group.bench_function("forward", |b| {
            b.iter(|| activation::forward(act, &x, black_box(&mut y)))
        });
        group.bench_function("backward", |b| {
            b.iter(|| activation::backward(act, &x, &dy, black_box(&mut y)));
        });
        group.finish();
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    convolutions(&mut criterion);
    products(&mut criterion);
    passes(&mut criterion);
    criterion.final_summary();
}
