//! The known faults of candle 0.11.1 that an operation must not have, each with a test.
//!
//! Where a test also shows the fault itself in candle, an update of candle that mends it will say so here.

use crate::golden::flat;
use candle_core::{DType, Device, Result, Tensor, Var};
use tallow_tensor::ops::{self, BatchNormArgs, Interpolation, Pool2dConfig};

const BOTH: [DType; 2] = [DType::F32, DType::F64];

fn image(values: &[f32], h: usize, w: usize, dtype: DType) -> Result<Var> {
    let xs = Tensor::from_slice(values, (1, 1, h, w), &Device::Cpu)?;
    Var::from_tensor(&xs.to_dtype(dtype)?)
}

/// The gradient of the sum of what `run` makes of `xs`.
fn gradient(xs: &Var, run: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<f64>> {
    let grads = run(xs)?.sum_all()?.backward()?;
    Ok(grads.get(xs).map_or(Vec::new(), flat))
}

#[test]
fn max_pool_gradient_is_whole_at_the_maximum() -> Result<()> {
    for dtype in BOTH {
        let xs = image(&[1., 2., 3., 4.], 2, 2, dtype)?;
        let found = gradient(&xs, |x| ops::max_pool2d(x, &Pool2dConfig::new(2)))?;
        assert_eq!(found, [0., 0., 0., 1.]);
    }
    let xs = image(&[1., 2., 3., 4.], 2, 2, DType::F32)?;
    assert_eq!(gradient(&xs, |x| x.max_pool2d(2))?, [0., 0., 0., 0.25]);
    Ok(())
}

#[test]
fn max_pool_ties_give_the_first_maximum_the_gradient() -> Result<()> {
    for dtype in BOTH {
        let xs = image(&[5., 5., 5., 5.], 2, 2, dtype)?;
        let found = gradient(&xs, |x| ops::max_pool2d(x, &Pool2dConfig::new(2)))?;
        assert_eq!(found, [1., 0., 0., 0.]);
        let found = gradient(&xs, |x| ops::adaptive_max_pool2d(x, [1, 1]))?;
        assert_eq!(found, [1., 0., 0., 0.]);
    }
    Ok(())
}

#[test]
fn max_pool_trains_where_windows_overlap_and_are_padded() -> Result<()> {
    let stem = Pool2dConfig {
        stride: [2, 2],
        padding: [1, 1],
        ..Pool2dConfig::new(3)
    };
    for dtype in BOTH {
        // The 9 in the middle is the maximum of all four windows.
        let xs = image(&[1., 1., 1., 1., 9., 1., 1., 1., 1.], 3, 3, dtype)?;
        let found = gradient(&xs, |x| ops::max_pool2d(x, &stem))?;
        assert_eq!(found, [0., 0., 0., 0., 4., 0., 0., 0., 0.]);
    }
    Ok(())
}

#[test]
fn padding_never_is_the_maximum() -> Result<()> {
    let padded = Pool2dConfig {
        padding: [1, 1],
        ..Pool2dConfig::new(2)
    };
    for dtype in BOTH {
        let xs = image(&[-1., -2., -3., -4.], 2, 2, dtype)?;
        assert_eq!(flat(&ops::max_pool2d(&xs, &padded)?), [-1., -2., -3., -4.]);
    }
    Ok(())
}

#[test]
fn avg_pool_trains_where_windows_overlap() -> Result<()> {
    let overlapping = Pool2dConfig {
        stride: [1, 1],
        ..Pool2dConfig::new(2)
    };
    for dtype in BOTH {
        let xs = image(&[1.; 9], 3, 3, dtype)?;
        let found = gradient(&xs, |x| ops::avg_pool2d(x, &overlapping, true))?;
        assert_eq!(found, [0.25, 0.5, 0.25, 0.5, 1., 0.5, 0.25, 0.5, 0.25]);
    }
    Ok(())
}

#[test]
fn softmax_keeps_the_gradient() -> Result<()> {
    for dtype in BOTH {
        let xs = Var::from_tensor(&Tensor::new(&[[0f32, 1., 2.]], &Device::Cpu)?.to_dtype(dtype)?)?;
        let first = |y: Tensor| y.narrow(1, 0, 1);
        let found = gradient(&xs, |x| first(ops::softmax(x, 1)?))?;
        assert!(found.iter().any(|g| g.abs() > 0.01), "{found:?}");
        let found = gradient(&xs, |x| first(ops::log_softmax(x, 1)?))?;
        assert!(found.iter().any(|g| g.abs() > 0.01), "{found:?}");
    }
    Ok(())
}

#[test]
fn attention_keeps_all_three_gradients() -> Result<()> {
    for dtype in BOTH {
        let part = |at: f32| -> Result<Var> {
            let values: Vec<f32> = (0..12).map(|i| (at + i as f32).sin()).collect();
            let part = Tensor::from_vec(values, (1, 2, 3, 2), &Device::Cpu)?;
            Var::from_tensor(&part.to_dtype(dtype)?)
        };
        let (q, k, v) = (part(0.)?, part(1.)?, part(2.)?);
        let grads = ops::attention(&q, &k, &v, 0.7)?
            .sqr()?
            .sum_all()?
            .backward()?;
        for part in [&q, &k, &v] {
            let gradient = grads.get(part).map(flat).unwrap_or_default();
            assert!(gradient.iter().any(|g| g.abs() > 1e-4), "{gradient:?}");
        }
    }
    Ok(())
}

#[test]
fn layer_norm_keeps_all_three_gradients() -> Result<()> {
    for dtype in BOTH {
        let xs = Tensor::new(&[[0f32, 1., 5.], [2., 0., 1.]], &Device::Cpu)?.to_dtype(dtype)?;
        let xs = Var::from_tensor(&xs)?;
        let weight =
            Var::from_tensor(&Tensor::new(&[1f32, 2., 3.], &Device::Cpu)?.to_dtype(dtype)?)?;
        let bias = Var::zeros(3, dtype, &Device::Cpu)?;
        let grads = ops::layer_norm(&xs, &weight, &bias, 1e-5)?
            .sum_all()?
            .backward()?;
        for var in [&xs, &weight, &bias] {
            let gradient = grads.get(var).map(flat).unwrap_or_default();
            assert!(gradient.iter().any(|g| g.abs() > 1e-3), "{gradient:?}");
        }
    }
    Ok(())
}

#[test]
fn nearest_resizing_adds_to_a_gradient_that_is_there() -> Result<()> {
    for dtype in BOTH {
        let xs = image(&[1., 2., 3., 4.], 2, 2, dtype)?;
        // The direct path contributes 1 each, the resized one 4 each.
        let found = gradient(&xs, |x| {
            let resized = ops::interpolate(x, [4, 4], Interpolation::Nearest)?;
            ops::add(&x.sum_all()?, &resized.sum_all()?)
        })?;
        assert_eq!(found, [5.; 4]);
    }
    Ok(())
}

#[test]
fn bilinear_resizing_has_a_gradient() -> Result<()> {
    let mode = Interpolation::Bilinear {
        align_corners: false,
    };
    for dtype in BOTH {
        let xs = image(&[1., 2., 3., 4.], 2, 2, dtype)?;
        let found = gradient(&xs, |x| ops::interpolate(x, [4, 4], mode))?;
        assert!(found.iter().all(|g| (g - 4.).abs() < 1e-5), "{found:?}");
    }
    Ok(())
}

#[test]
fn relu_has_no_gradient_at_zero() -> Result<()> {
    for dtype in BOTH {
        let xs = Var::from_tensor(&Tensor::new(&[-1f32, 0., 1.], &Device::Cpu)?.to_dtype(dtype)?)?;
        assert_eq!(gradient(&xs, ops::relu)?, [0., 0., 1.]);
    }
    let xs = Var::new(&[-1f32, 0., 1.], &Device::Cpu)?;
    assert_eq!(gradient(&xs, Tensor::relu)?, [0., 1., 1.]);
    Ok(())
}

#[test]
fn the_sigmoid_of_large_numbers_has_a_finite_gradient() -> Result<()> {
    for dtype in BOTH {
        let xs = Tensor::new(&[-1000f32, 1000.], &Device::Cpu)?.to_dtype(dtype)?;
        let xs = Var::from_tensor(&xs)?;
        for run in [ops::sigmoid, ops::silu] {
            assert!(gradient(&xs, run)?.iter().all(|g| g.is_finite()));
        }
    }
    Ok(())
}

#[test]
fn a_factor_of_zero_gives_a_zero_gradient_rather_than_none() -> Result<()> {
    for dtype in BOTH {
        let xs = Var::ones(2, dtype, &Device::Cpu)?;
        assert_eq!(gradient(&xs, |x| ops::mul_scalar(x, 0.))?, [0., 0.]);
    }
    Ok(())
}

#[test]
fn convolution_of_uneven_leftovers_trains() -> Result<()> {
    // Stride 2 leaves one row and no column unread; candle pads its data gradient by the rows alone.
    let config = ops::Conv2dConfig {
        stride: [2, 2],
        ..Default::default()
    };
    for dtype in BOTH {
        let xs = Var::ones((1, 1, 6, 5), dtype, &Device::Cpu)?;
        let weight = Tensor::ones((1, 1, 3, 3), dtype, &Device::Cpu)?;
        let found = gradient(&xs, |x| ops::conv2d(x, &weight, None, &config))?;
        assert_eq!(found[..5], [1., 1., 2., 1., 1.]);
        assert_eq!(found[25..], [0.; 5]);
    }
    Ok(())
}

#[test]
fn images_get_no_gradient() -> Result<()> {
    let images = Tensor::ones((1, 1, 4, 4), DType::F32, &Device::Cpu)?;
    let weight = Var::ones((1, 1, 3, 3), DType::F32, &Device::Cpu)?;
    let ys = ops::conv2d(&images, &weight, None, &Default::default())?;
    let grads = ys.sum_all()?.backward()?;
    assert!(grads.get(&images).is_none());
    assert_eq!(grads.get(&weight).map(flat), Some(vec![4.; 9]));
    Ok(())
}

#[test]
fn batch_norm_normalises_with_the_biased_variance() -> Result<()> {
    for dtype in BOTH {
        let xs = Tensor::new(&[[-1f32], [1.]], &Device::Cpu)?.to_dtype(dtype)?;
        let one = Var::ones(1, dtype, &Device::Cpu)?;
        let zero = Var::zeros(1, dtype, &Device::Cpu)?;
        let (running_mean, running_var) = (zero.copy()?, one.copy()?);
        let (running_mean, running_var) = (
            Var::from_tensor(&running_mean.detach())?,
            Var::from_tensor(&running_var.detach())?,
        );
        let args = BatchNormArgs {
            weight: &one,
            bias: &zero,
            running_mean: &running_mean,
            running_var: &running_var,
            eps: 0.,
            momentum: 0.1,
        };
        // Biased: variance 1. Unbiased: 2, and so +-0.707.
        assert_eq!(flat(&ops::batch_norm(&xs, &args, true)?), [-1., 1.]);
        // The running one is the unbiased: 0.9 + 0.1 * 2.
        assert!((flat(&running_var)[0] - 1.1).abs() < 1e-6);
    }
    Ok(())
}

#[test]
fn a_second_backward_gives_the_same_gradients() -> Result<()> {
    let xs = image(&[1., 2., 3., 4.], 2, 2, DType::F32)?;
    let loss = ops::max_pool2d(&xs, &Pool2dConfig::new(2))?.sum_all()?;
    let first = loss.backward()?.get(&xs).map(flat);
    assert_eq!(loss.backward()?.get(&xs).map(flat), first);
    Ok(())
}

#[test]
fn half_precision_trains_on_the_cpu() -> Result<()> {
    let device = Device::Cpu;
    let wave = |shape: &[usize], phase: f64| -> Result<Tensor> {
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..count).map(|i| (phase + i as f64).sin()).collect();
        Tensor::from_vec(values, shape, &device)
    };
    let inputs = [
        wave(&[2, 3, 6, 6], 0.)?,
        wave(&[4, 3, 3, 3], 1.)?,
        wave(&[4], 2.)?,
        wave(&[5, 64], 3.)?,
    ];
    let run = |dtype: DType| -> Result<Vec<Vec<f64>>> {
        let vars = inputs
            .iter()
            .map(|input| Var::from_tensor(&input.to_dtype(dtype)?))
            .collect::<Result<Vec<_>>>()?;
        let [zero, one] = [
            Var::zeros(4, dtype, &device)?,
            Var::ones(4, dtype, &device)?,
        ];
        let args = BatchNormArgs {
            weight: &vars[2],
            bias: &vars[2],
            running_mean: &zero,
            running_var: &one,
            eps: 1e-5,
            momentum: 0.1,
        };
        let xs = ops::conv2d(&vars[0], &vars[1], None, &Default::default())?;
        let xs = ops::gelu(&ops::batch_norm(&xs, &args, true)?)?;
        let ys = ops::linear(&ops::flatten(&xs, 1)?, &vars[3], None)?;
        assert_eq!(ys.dtype(), dtype);
        let grads = ops::sum(&ops::mul(&ys, &ys)?, &[0, 1], false)?.backward()?;
        let mut results = vec![flat(&ys), flat(&zero), flat(&one)];
        results.extend(
            vars.iter()
                .map(|var| grads.get(var).map(flat).unwrap_or_default()),
        );
        Ok(results)
    };
    let expected = run(DType::F64)?;
    // Twenty times the spacing of each type at 1: every value on the way is rounded.
    for (dtype, tolerance) in [(DType::F16, 0.02), (DType::BF16, 0.15)] {
        for (found, expected) in run(dtype)?.iter().zip(&expected) {
            assert_eq!(found.len(), expected.len());
            let scale = expected.iter().fold(0f64, |max, v| max.max(v.abs()));
            for (f, e) in found.iter().zip(expected) {
                assert!((f - e).abs() < tolerance * scale, "{dtype:?}: {f} for {e}");
            }
        }
    }
    Ok(())
}
