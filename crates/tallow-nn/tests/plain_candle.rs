//! Layers in a program that knows nothing else of Tallow: candle's `VarMap`, candle's optimizers, candle's layers
//! beside ours.

mod reference;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{ModuleT, Optimizer, VarBuilder, VarMap};
use tallow_nn::*;

fn batch() -> Result<(Tensor, Tensor)> {
    let images = reference::formula::image("plain", &[8, 1, 12, 12])?;
    Ok((
        images,
        Tensor::new(&[0u32, 1, 2, 3, 0, 1, 2, 3], &Device::Cpu)?,
    ))
}

#[test]
fn a_model_on_a_var_map_learns_with_candles_adamw() -> Result<()> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let config = SimpleCifarConfig {
        in_channels: 1,
        num_classes: 4,
        dropout: 0.0,
    };
    let model = SimpleCifar::from_config(config, vb)?;
    let mut optimizer = candle_nn::AdamW::new_lr(vars.all_vars(), 1e-3)?;
    let (images, labels) = batch()?;
    let mut losses = Vec::new();
    for _ in 0..8 {
        let loss = candle_nn::loss::cross_entropy(&model.forward_t(&images, true)?, &labels)?;
        losses.push(loss.to_scalar::<f32>()?);
        optimizer.backward_step(&loss)?;
    }
    assert!(losses[7] < 0.7 * losses[0], "{losses:?}");
    Ok(())
}

#[test]
fn training_moves_the_running_statistics_of_the_var_map_and_evaluation_does_not() -> Result<()> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let norm = BatchNorm2d::new(1, BatchNormConfig::default(), vb.pp("bn"))?;
    let stored = || vars.data().lock().unwrap()["bn.running_mean"].to_vec1::<f32>();
    let xs = Tensor::full(3f32, (2, 1, 4, 4), &Device::Cpu)?;
    norm.forward_t(&xs, false)?;
    assert_eq!(stored()?, [0.0]);
    norm.forward_t(&xs, true)?;
    assert!((stored()?[0] - 0.3).abs() < 1e-6, "{:?}", stored()?);
    Ok(())
}

#[test]
fn ours_and_candles_layers_mix_and_both_get_gradients() -> Result<()> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let conv = Conv2d::new(1, 4, 3, Conv2dConfig::default(), vb.pp("conv"))?;
    let theirs = candle_nn::linear(4 * 5 * 5, 4, vb.pp("fc"))?;
    let model = Sequential::new(vec![
        Layer::new(conv),
        Layer::new(|xs: &Tensor| xs.relu()),
        Layer::new(MaxPool2d::new(2)),
        Layer::new(Flatten),
        Layer::new(theirs),
    ]);
    let (images, labels) = batch()?;
    let loss = candle_nn::loss::cross_entropy(&model.forward_t(&images, true)?, &labels)?;
    let gradients = loss.backward()?;
    assert_eq!(vars.all_vars().len(), 4);
    for var in vars.all_vars() {
        let gradient = gradients.get(&var).expect("every parameter has a gradient");
        assert!(gradient.abs()?.sum_all()?.to_scalar::<f32>()? > 0.0);
    }
    Ok(())
}

#[test]
fn a_model_over_plain_tensors_evaluates_and_even_trains_its_statistics() -> Result<()> {
    let ones = |n: usize| Tensor::ones(n, DType::F32, &Device::Cpu);
    let names = ["weight", "bias", "running_mean", "running_var"];
    let tensors = names
        .iter()
        .map(|n| Ok((n.to_string(), ones(2)?)))
        .collect::<Result<_>>()?;
    let norm = BatchNorm2d::new(
        2,
        Default::default(),
        VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu),
    )?;
    let xs = Tensor::ones((1, 2, 3, 3), DType::F32, &Device::Cpu)?;
    assert_eq!(
        norm.forward_t(&xs, false)?
            .flatten_all()?
            .to_vec1::<f32>()?,
        [1.0; 18]
    );
    norm.forward_t(&(xs * 11.0)?, true)?;
    assert!((norm.running_mean().to_vec1::<f32>()?[0] - 2.0).abs() < 1e-5);
    Ok(())
}
