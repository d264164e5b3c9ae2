//! The same bits for any number of threads, and for every run.

use candle_core::{DType, Device, Result, Tensor, Var};
use tallow_tensor::ops::{self, BatchNormArgs, Conv2dConfig, CrossEntropyConfig, Pool2dConfig};
use tallow_tensor::rng;

fn filled(shape: &[usize], phase: f32) -> Var {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count)
        .map(|i| (phase + i as f32 * 0.37).sin())
        .collect();
    let values = Tensor::from_vec(values, shape, &Device::Cpu).expect("its shape");
    Var::from_tensor(&values).expect("a copy")
}

/// A small network with every kind of reduction: convolution, batch norm, pools, linear, dropout, loss.
/// Gives the bits of the loss and of every gradient.
fn network() -> Result<Vec<u32>> {
    rng::begin_step(42, 0);
    let device = Device::Cpu;
    let images = filled(&[8, 3, 24, 24], 0.);
    let [conv1, conv2] = [filled(&[16, 3, 3, 3], 1.), filled(&[32, 16, 3, 3], 2.)];
    let [gamma, beta] = [filled(&[16], 3.), filled(&[16], 4.)];
    let [head, bias] = [filled(&[10, 32], 5.), filled(&[10], 6.)];
    let running_mean = Var::zeros(16, DType::F32, &device)?;
    let running_var = Var::ones(16, DType::F32, &device)?;
    let norm = BatchNormArgs {
        weight: &gamma,
        bias: &beta,
        running_mean: &running_mean,
        running_var: &running_var,
        eps: 1e-5,
        momentum: 0.1,
    };
    let same = Conv2dConfig {
        padding: [1, 1],
        ..Default::default()
    };
    let halve = Conv2dConfig {
        stride: [2, 2],
        ..same.clone()
    };
    let xs = ops::conv2d(&images.as_detached_tensor(), &conv1, None, &same)?;
    let xs = ops::relu6(&ops::batch_norm(&xs, &norm, true)?)?;
    let xs = ops::max_pool2d(&xs, &Pool2dConfig::new(2))?;
    let xs = ops::gelu(&ops::conv2d(&xs, &conv2, None, &halve)?)?;
    let xs = ops::dropout(&ops::adaptive_avg_pool2d(&xs, [1, 1])?, 0.2, true)?;
    let logits = ops::linear(&ops::flatten(&xs, 1)?, &head, Some(&bias))?;
    let classes = Tensor::arange(0u32, 8, &device)?;
    let loss = ops::cross_entropy(&logits, &classes, &CrossEntropyConfig::default())?;

    let grads = loss.backward()?;
    let mut bits = vec![loss.to_scalar::<f32>()?.to_bits()];
    for var in [&conv1, &conv2, &gamma, &beta, &head, &bias] {
        let gradient = grads.get(var).expect("every parameter takes part");
        bits.extend(
            gradient
                .flatten_all()?
                .to_vec1::<f32>()?
                .iter()
                .map(|v| v.to_bits()),
        );
    }
    for running in [&running_mean, &running_var] {
        bits.extend(running.to_vec1::<f32>()?.iter().map(|v| v.to_bits()));
    }
    Ok(bits)
}

fn with_threads(threads: usize) -> Vec<u32> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("a few threads")
        .install(network)
        .expect("it fits")
}

#[test]
fn gradients_do_not_depend_on_the_number_of_threads() {
    let one = with_threads(1);
    assert!(one.len() > 5000);
    assert!(one == with_threads(2), "1 and 2 threads");
    assert!(one == with_threads(5), "1 and 5 threads");
    assert!(one == with_threads(2), "a repeat");
}
