//! Dropout and stochastic depth: rates, scale, repeatability, and where they do nothing. Containers as well, since a
//! residual branch is where stochastic depth lives.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Module, ModuleT};
use tallow_nn::*;
use tallow_tensor::rng;

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap()
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn dropout_zeroes_at_its_rate_and_scales_the_rest() -> Result<()> {
    rng::begin_step(42, 0);
    let ys = flat(&Dropout::new(0.2)?.forward_t(&ones(&[100, 1000]), true)?);
    assert!(ys.iter().all(|y| *y == 0.0 || (y - 1.25).abs() < 1e-6));
    let zeros = ys.iter().filter(|y| **y == 0.0).count() as f64 / ys.len() as f64;
    assert!((zeros - 0.2).abs() < 0.01, "{zeros}");
    Ok(())
}

#[test]
fn drop_path_zeroes_whole_samples() -> Result<()> {
    rng::begin_step(42, 0);
    let ys = DropPath::new(0.25)?.forward_t(&ones(&[400, 3, 2]), true)?;
    let samples: Vec<Vec<f32>> = ys.flatten_from(1)?.to_vec2()?;
    for sample in &samples {
        assert!(
            sample.iter().all(|y| *y == sample[0]),
            "a sample is dropped as a whole: {sample:?}"
        );
        assert!(sample[0] == 0.0 || (sample[0] - 4.0 / 3.0).abs() < 1e-6);
    }
    let dropped = samples.iter().filter(|s| s[0] == 0.0).count() as f64 / 400.0;
    assert!((dropped - 0.25).abs() < 0.1, "{dropped}");
    Ok(())
}

#[test]
fn the_gradient_passes_where_the_value_passed() -> Result<()> {
    rng::begin_step(42, 0);
    let xs = Var::from_tensor(&ones(&[64, 8]))?;
    for layer in [
        Layer::new(Dropout::new(0.5)?),
        Layer::new(DropPath::new(0.5)?),
    ] {
        let ys = layer.forward_t(&xs, true)?;
        let gradients = ys.sum_all()?.backward()?;
        assert_eq!(
            flat(gradients.get(&xs).unwrap()),
            flat(&ys),
            "of ones, value and gradient are the mask"
        );
    }
    Ok(())
}

#[test]
fn the_same_step_gives_the_same_mask_and_each_draw_another() -> Result<()> {
    let (dropout, xs) = (Dropout::new(0.5)?, ones(&[16, 16]));
    rng::begin_step(42, 7);
    let first = flat(&dropout.forward_t(&xs, true)?);
    let second = flat(&dropout.forward_t(&xs, true)?);
    assert_ne!(first, second);
    rng::begin_step(42, 7);
    assert_eq!(flat(&dropout.forward_t(&xs, true)?), first);
    rng::begin_step(42, 8);
    assert_ne!(flat(&dropout.forward_t(&xs, true)?), first);
    rng::begin_step(43, 7);
    assert_ne!(flat(&dropout.forward_t(&xs, true)?), first);
    Ok(())
}

#[test]
fn evaluation_and_rate_zero_change_nothing() -> Result<()> {
    let xs = Tensor::arange(0f32, 12., &Device::Cpu)?.reshape((3, 4))?;
    for (p, train) in [(0.5, false), (0.0, true), (0.0, false)] {
        assert_eq!(flat(&Dropout::new(p)?.forward_t(&xs, train)?), flat(&xs));
        assert_eq!(flat(&DropPath::new(p)?.forward_t(&xs, train)?), flat(&xs));
    }
    Ok(())
}

#[test]
fn attention_dropout_thins_the_weights_only_in_training() -> Result<()> {
    let params = tallow_tensor::Params::f32_cpu();
    let config = AttentionConfig {
        num_heads: 2,
        attention_dropout: 0.5,
        ..Default::default()
    };
    let thinned = Attention::new(8, config, params.builder())?;
    let whole = Attention::new(
        8,
        AttentionConfig {
            attention_dropout: 0.0,
            ..config
        },
        params.builder(),
    )?;
    let xs = Tensor::arange(0f32, 80., &Device::Cpu)?.reshape((2, 5, 8))?;
    assert_eq!(
        flat(&thinned.forward_t(&xs, false)?),
        flat(&whole.forward_t(&xs, false)?)
    );
    assert_ne!(
        flat(&thinned.forward_t(&xs, true)?),
        flat(&whole.forward_t(&xs, true)?)
    );
    Ok(())
}

#[test]
fn a_residual_adds_its_branch_to_its_shortcut() -> Result<()> {
    let xs = Tensor::new(&[[-1f32, 2.]], &Device::Cpu)?;
    let double = |xs: &Tensor| xs * 2.0;
    assert_eq!(
        flat(&Residual::new(double).forward_t(&xs, true)?),
        [-3.0, 6.0]
    );
    let with_shortcut = Residual::new(double).shortcut(Activation::Relu);
    assert_eq!(flat(&with_shortcut.forward_t(&xs, true)?), [-2.0, 6.0]);
    let thinned = Residual::new(double).drop_path(DropPath::new(0.5)?);
    let mut seen = std::collections::BTreeSet::new();
    for step in 0..64 {
        rng::begin_step(42, step);
        let ys = flat(&thinned.forward_t(&xs, true)?);
        assert!(
            ys == [-1.0, 2.0] || ys == [-5.0, 10.0],
            "without the branch, or with it twice: {ys:?}"
        );
        seen.insert(ys[0] as i32);
    }
    assert_eq!(seen.len(), 2, "both happen");
    assert_eq!(flat(&thinned.forward_t(&xs, false)?), [-3.0, 6.0]);
    Ok(())
}

#[test]
fn an_empty_sequential_is_the_identity_and_flatten_keeps_the_batch() -> Result<()> {
    let xs = ones(&[2, 3, 4, 5]);
    let empty = Sequential::new(Vec::new());
    assert!(empty.is_empty());
    assert_eq!(empty.forward_t(&xs, true)?.dims(), [2, 3, 4, 5]);
    assert_eq!(Flatten.forward(&xs)?.dims(), [2, 60]);
    Ok(())
}
