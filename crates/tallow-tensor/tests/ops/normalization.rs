//! Batch, layer and group normalisation; the running statistics.

use crate::golden::{Case, case, check_all, flat};
use candle_core::{DType, Device, Result, Tensor, Var};
use tallow_tensor::ops::{self, BatchNormArgs};

fn batch_norm(x: &[Tensor], train: bool) -> Result<Tensor> {
    // The statistics of a case are plain tensors; variables of their own leave them as they are.
    let running_mean = Var::from_tensor(&x[3].copy()?.detach())?;
    let running_var = Var::from_tensor(&x[4].copy()?.detach())?;
    let args = BatchNormArgs {
        weight: &x[1],
        bias: &x[2],
        running_mean: &running_mean,
        running_var: &running_var,
        eps: 1e-5,
        momentum: 0.1,
    };
    ops::batch_norm(&x[0], &args, train)
}

pub(crate) const CASES: &[Case] = &[
    case("batch_norm_train", |x| batch_norm(x, true)),
    case("batch_norm_train_features", |x| batch_norm(x, true)),
    case("batch_norm_train_sequence", |x| batch_norm(x, true)),
    case("batch_norm_eval", |x| batch_norm(x, false)),
    case("batch_norm_eval_features", |x| batch_norm(x, false)),
    case("batch_norm_eval_sequence", |x| batch_norm(x, false)),
    case("layer_norm", |x| ops::layer_norm(&x[0], &x[1], &x[2], 1e-5)),
    case("layer_norm_two_dims", |x| {
        ops::layer_norm(&x[0], &x[1], &x[2], 1e-5)
    }),
    case("group_norm", |x| {
        ops::group_norm(&x[0], &x[1], &x[2], 3, 1e-5)
    }),
    case("group_norm_features", |x| {
        ops::group_norm(&x[0], &x[1], &x[2], 2, 1e-5)
    }),
];

#[test]
fn normalizations_match_pytorch_and_central_differences() {
    check_all(CASES);
}

/// One channel holding 1, 2, 3, 4: mean 2.5, biased variance 1.25, unbiased 5/3.
fn run_on_one_channel(dtype: DType, train: bool) -> (Vec<f64>, Vec<f64>) {
    let device = Device::Cpu;
    let xs = Tensor::new(&[1f32, 2., 3., 4.], &device).and_then(|x| x.reshape((2, 1, 2, 1)));
    let xs = xs.and_then(|x| x.to_dtype(dtype)).expect("a plain tensor");
    let one = Tensor::ones(1, dtype, &device).expect("a plain tensor");
    let zero = one.zeros_like().expect("a plain tensor");
    let running_mean = Var::from_tensor(&zero).expect("a copy");
    let running_var = Var::from_tensor(&one).expect("a copy");
    let args = BatchNormArgs {
        weight: &one,
        bias: &zero,
        running_mean: &running_mean,
        running_var: &running_var,
        eps: 1e-5,
        momentum: 0.1,
    };
    ops::batch_norm(&xs, &args, train).expect("it fits");
    (flat(&running_mean), flat(&running_var))
}

#[test]
fn running_statistics_follow_the_batch_with_the_unbiased_variance() {
    for dtype in [DType::F64, DType::F32] {
        let (mean, var) = run_on_one_channel(dtype, true);
        assert!((mean[0] - 0.25).abs() < 1e-6, "{mean:?}");
        assert!((var[0] - (0.9 + 0.1 * 5. / 3.)).abs() < 1e-6, "{var:?}");
    }
}

#[test]
fn evaluation_leaves_the_running_statistics_alone() {
    for dtype in [DType::F64, DType::F32] {
        assert_eq!(run_on_one_channel(dtype, false), (vec![0.], vec![1.]));
    }
}

#[test]
fn running_statistics_get_no_gradient() -> Result<()> {
    let device = Device::Cpu;
    for dtype in [DType::F64, DType::F32] {
        for train in [false, true] {
            let xs = Var::ones((2, 3, 2, 2), dtype, &device)?;
            let [weight, bias, running_mean, running_var] =
                [(); 4].map(|()| Var::ones(3, dtype, &device).expect("a plain tensor"));
            let args = BatchNormArgs {
                weight: &weight,
                bias: &bias,
                running_mean: &running_mean,
                running_var: &running_var,
                eps: 1e-5,
                momentum: 0.1,
            };
            let grads = ops::batch_norm(&xs, &args, train)?.sum_all()?.backward()?;
            assert!(grads.get(&running_mean).is_none());
            assert!(grads.get(&running_var).is_none());
            assert!(grads.get(&weight).is_some());
        }
    }
    Ok(())
}
