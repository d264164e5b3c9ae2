//! Softmax, its logarithm, cross entropy.

use crate::golden::{Case, case, check_all};
use candle_core::{DType, Device, Result, Tensor};
use tallow_tensor::ops::{self, CrossEntropyConfig};

fn cross_entropy(x: &[Tensor], label_smoothing: f64, ignore_index: Option<i64>) -> Result<Tensor> {
    let config = CrossEntropyConfig {
        label_smoothing,
        ignore_index,
    };
    ops::cross_entropy(&x[0], &x[1], &config)
}

pub(crate) const CASES: &[Case] = &[
    case("softmax_0", |x| ops::softmax(&x[0], 0)),
    case("softmax_1", |x| ops::softmax(&x[0], 1)),
    case("softmax_2", |x| ops::softmax(&x[0], 2)),
    case("log_softmax_0", |x| ops::log_softmax(&x[0], 0)),
    case("log_softmax_1", |x| ops::log_softmax(&x[0], 1)),
    case("log_softmax_2", |x| ops::log_softmax(&x[0], 2)),
    case("softmax_ties", |x| ops::softmax(&x[0], 1)),
    case("softmax_large", |x| ops::softmax(&x[0], 1)),
    case("log_softmax_large", |x| ops::log_softmax(&x[0], 1)),
    case("cross_entropy", |x| cross_entropy(x, 0., None)),
    case("cross_entropy_smooth", |x| cross_entropy(x, 0.1, None)),
    case("cross_entropy_ignore", |x| cross_entropy(x, 0., Some(-100))),
    case("cross_entropy_ignore_smooth", |x| {
        cross_entropy(x, 0.2, Some(2))
    }),
    case("cross_entropy_soft", |x| cross_entropy(x, 0., None)),
    case("cross_entropy_soft_smooth", |x| cross_entropy(x, 0.1, None)),
];

#[test]
fn softmax_and_losses_match_pytorch_and_central_differences() {
    check_all(CASES);
}

#[test]
fn class_indices_may_be_any_integer_type() -> Result<()> {
    let logits = Tensor::new(&[[0.5f32, -1., 2.], [1., 1., 0.]], &Device::Cpu)?;
    let classes = Tensor::new(&[2u32, 0], &Device::Cpu)?;
    let config = CrossEntropyConfig::default();
    let expected = ops::cross_entropy(&logits, &classes, &config)?.to_scalar::<f32>()?;
    for dtype in [DType::I64, DType::U8] {
        let classes = classes.to_dtype(dtype)?;
        let found = ops::cross_entropy(&logits, &classes, &config)?;
        assert_eq!(found.to_scalar::<f32>()?, expected);
    }
    Ok(())
}

#[test]
fn a_batch_of_ignored_targets_has_no_mean() -> Result<()> {
    let logits = Tensor::new(&[[0.5f32, -1.]], &Device::Cpu)?;
    let classes = Tensor::new(&[1u32], &Device::Cpu)?;
    let config = CrossEntropyConfig {
        ignore_index: Some(1),
        ..Default::default()
    };
    for logits in [logits.clone(), logits.to_dtype(DType::F64)?] {
        let loss = ops::cross_entropy(&logits, &classes, &config)?;
        assert!(loss.to_dtype(DType::F64)?.to_scalar::<f64>()?.is_nan());
    }
    Ok(())
}
