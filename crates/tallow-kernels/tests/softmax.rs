//! Softmax, its logarithm and cross entropy against `f64`, PyTorch's numbers and differences.

mod support;

use support::*;
use tallow_kernels::Error;
use tallow_kernels::loss::{CrossEntropy, Targets, cross_entropy, cross_entropy_backward};
use tallow_kernels::softmax::{log_softmax, log_softmax_backward, softmax, softmax_backward};

fn log_softmax_reference(x: &[f64], cols: usize) -> Vec<f64> {
    let rows = x.chunks(cols).flat_map(|row| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        row.iter().map(move |x| x - max - total)
    });
    rows.collect()
}

fn softmax_reference(x: &[f64], cols: usize) -> Vec<f64> {
    log_softmax_reference(x, cols)
        .into_iter()
        .map(f64::exp)
        .collect()
}

const SHAPES: [[usize; 2]; 6] = [[1, 1], [3, 2], [5, 10], [2, 33], [7, 100], [3, 1000]];

#[test]
fn values_follow_the_formula_even_for_large_logits() {
    at_every_level(|_| {
        for shape in SHAPES {
            for (low, high) in [(-3.0, 3.0), (-200.0, 500.0)] {
                let x = data(1, shape[0] * shape[1], low, high);
                let mut y = vec![f32::NAN; x.len()];
                softmax(shape, &x, &mut y).unwrap();
                assert_close(&y, &softmax_reference(&widen(&x), shape[1]), 3e-7);
                log_softmax(shape, &x, &mut y).unwrap();
                assert_close(&y, &log_softmax_reference(&widen(&x), shape[1]), 3e-7);
            }
        }
    });
}

#[test]
fn gradients_follow_central_differences() {
    at_every_level(|_| {
        for shape in [[3, 2], [2, 10], [2, 33]] {
            let x = data(2, shape[0] * shape[1], -2.0, 2.0);
            let dy = data(3, x.len(), -1.0, 1.0);
            let (mut y, mut dx) = (vec![0.0; x.len()], vec![f32::NAN; x.len()]);
            softmax(shape, &x, &mut y).unwrap();
            softmax_backward(shape, &y, &dy, &mut dx).unwrap();
            let loss = |x: &[f64]| weighted(&softmax_reference(x, shape[1]), &dy);
            assert_close(&dx, &numeric_gradient(&x, loss), 1e-6);
            log_softmax(shape, &x, &mut y).unwrap();
            log_softmax_backward(shape, &y, &dy, &mut dx).unwrap();
            let loss = |x: &[f64]| weighted(&log_softmax_reference(x, shape[1]), &dy);
            assert_close(&dx, &numeric_gradient(&x, loss), 1e-6);
        }
    });
}

#[test]
fn a_masked_logit_has_no_share_and_rows_without_any_are_nan() {
    at_every_level(|_| {
        let none = f32::NEG_INFINITY;
        let mut y = [9.0; 6];
        softmax([3, 2], &[none, 1.0, none, none, f32::NAN, 1.0], &mut y).unwrap();
        assert_eq!(y[..2], [0.0, 1.0]);
        assert!(y[2..].iter().all(|y| y.is_nan()));
        log_softmax([3, 2], &[none, 1.0, none, none, f32::NAN, 1.0], &mut y).unwrap();
        assert_eq!(y[..2], [none, 0.0]);
        assert!(y[2..].iter().all(|y| y.is_nan()));
    });
}

fn loss_and_gradient(
    config: &CrossEntropy,
    shape: [usize; 2],
    logits: &[f32],
    targets: Targets<'_>,
) -> (f32, Vec<f32>) {
    let (mut probs, mut dx) = (vec![f32::NAN; logits.len()], vec![f32::NAN; logits.len()]);
    let loss = cross_entropy(config, shape, logits, targets, &mut probs).unwrap();
    cross_entropy_backward(config, shape, &probs, targets, 1.0, &mut dx).unwrap();
    (loss, dx)
}

fn config(label_smoothing: f64, ignore_index: Option<i64>) -> CrossEntropy {
    CrossEntropy {
        label_smoothing,
        ignore_index,
    }
}

/// Numbers of `torch.nn.functional.cross_entropy` (2.15), and its gradients by autograd.
#[test]
fn losses_and_gradients_are_pytorchs() {
    let logits = [1.0, -0.5, 2.0, 0.0, 0.25, -1.0, 3.0, 1.0, 0.5];
    let classes = Targets::Indices(&[2, 0, 1]);
    let soft = [0.2, 0.3, 0.5, 1.0, 0.0, 0.0, 0.5, 0.25, 0.0];
    let cases: [(_, _, f64, [f64; 9]); 4] = [
        (
            config(0.0, None),
            classes,
            1.181183815,
            [
                0.08457206,
                0.01887058,
                -0.10344265,
                -0.20763752,
                0.16139662,
                0.04624091,
                0.273803,
                -0.29627815,
                0.02247512,
            ],
        ),
        (
            config(0.1, Some(-100)),
            classes,
            1.2117393017,
            [
                0.07346094,
                0.00775946,
                -0.08122043,
                -0.18541528,
                0.1502855,
                0.03512979,
                0.26269186,
                -0.2740559,
                0.01136401,
            ],
        ),
        (
            config(0.2, Some(0)),
            classes,
            1.3508033752,
            [
                0.09352475,
                -0.00502747,
                -0.08849731,
                0.0,
                0.0,
                0.0,
                0.37737116,
                -0.37775052,
                0.00037934,
            ],
        ),
        (
            config(0.3, None),
            Targets::Soft(&soft),
            1.1330410242,
            [
                0.00457205,
                -0.08446276,
                0.07989068,
                -0.14097086,
                0.12806329,
                0.01290757,
                0.07588747,
                -0.06109612,
                -0.01479136,
            ],
        ),
    ];
    at_every_level(|_| {
        for (config, targets, loss, gradient) in &cases {
            let found = loss_and_gradient(config, [3, 3], &logits, *targets);
            assert_close(&[found.0], &[*loss], 1e-7);
            assert_close(&found.1, gradient, 1e-7);
        }
    });
}

#[test]
fn loss_gradients_follow_central_differences() {
    let shape @ [rows, cols] = [5, 19];
    let logits = data(4, rows * cols, -3.0, 3.0);
    let soft = data(5, rows * cols, 0.0, 0.2);
    let indices = [3, 18, 0, 7, 7];
    at_every_level(|_| {
        for (smoothing, ignored) in [(0.0, None), (0.1, None), (0.25, Some(7)), (1.0, None)] {
            for targets in [Targets::Indices(&indices), Targets::Soft(&soft)] {
                let ignored = ignored.filter(|_| matches!(targets, Targets::Indices(_)));
                let formula = |x: &[f64]| {
                    let log_probs = log_softmax_reference(x, cols);
                    let (mut loss, mut counted) = (0.0, 0.0);
                    for (row, log_probs) in log_probs.chunks(cols).enumerate() {
                        if matches!(targets, Targets::Indices(i) if ignored == Some(i[row].into()))
                        {
                            continue;
                        }
                        counted += 1.0;
                        for (col, log_prob) in log_probs.iter().enumerate() {
                            let target = match targets {
                                Targets::Indices(i) => f64::from(u8::from(i[row] as usize == col)),
                                Targets::Soft(t) => f64::from(t[row * cols + col]),
                            };
                            let spread = smoothing / cols as f64;
                            loss -= ((1.0 - smoothing) * target + spread) * log_prob;
                        }
                    }
                    loss / counted
                };
                let config = config(smoothing, ignored);
                let (loss, gradient) = loss_and_gradient(&config, shape, &logits, targets);
                assert_close(&[loss], &[formula(&widen(&logits))], 5e-7);
                assert_close(&gradient, &numeric_gradient(&logits, formula), 1e-6);
            }
        }
    });
}

#[test]
fn a_nan_among_the_logits_makes_the_loss_nan() {
    at_every_level(|_| {
        let (loss, gradient) = loss_and_gradient(
            &config(0.0, None),
            [2, 2],
            &[f32::NAN, 1.0, 1.0, 1.0],
            Targets::Indices(&[1, 0]),
        );
        assert!(loss.is_nan() && gradient[..2].iter().all(|x| x.is_nan()));
        assert_eq!(gradient[2..], [-0.25, 0.25]);
    });
}

#[test]
fn the_incoming_gradient_scales_the_outgoing() {
    let (plain, logits) = (config(0.1, None), [1.0, 2.0, 0.5]);
    let (_, once) = loss_and_gradient(&plain, [1, 3], &logits, Targets::Indices(&[1]));
    let mut probs = [0.0; 3];
    softmax([1, 3], &logits, &mut probs).unwrap();
    let mut twice = [0.0; 3];
    cross_entropy_backward(
        &plain,
        [1, 3],
        &probs,
        Targets::Indices(&[1]),
        2.0,
        &mut twice,
    )
    .unwrap();
    assert_close(
        &twice,
        &once.iter().map(|x| 2.0 * f64::from(*x)).collect::<Vec<_>>(),
        1e-7,
    );
}

#[test]
fn a_mean_over_nothing_is_nan_and_moves_nothing() {
    for smoothing in [0.0, 0.1] {
        let config = config(smoothing, Some(1));
        let (loss, gradient) =
            loss_and_gradient(&config, [2, 2], &[1.0; 4], Targets::Indices(&[1, 1]));
        assert!(loss.is_nan());
        assert_eq!(gradient, [0.0; 4]);
    }
    assert!(
        loss_and_gradient(&config(0.0, None), [0, 2], &[], Targets::Indices(&[]))
            .0
            .is_nan()
    );
}

#[test]
fn a_class_that_does_not_exist_is_an_error_that_names_its_row() {
    let mut probs = [7.0; 6];
    let none = config(0.0, None);
    let error = cross_entropy(
        &none,
        [3, 2],
        &[0.0; 6],
        Targets::Indices(&[0, 1, 2]),
        &mut probs,
    )
    .unwrap_err();
    assert_eq!(
        error,
        Error::Index {
            kernel: "cross_entropy",
            row: 2,
            value: 2,
            bound: 2
        }
    );
    assert!(error.to_string().contains("row 2") && error.to_string().contains("0 to 1"));
    assert_eq!(probs, [7.0; 6], "nothing was written");
    // The ignored index need not be a class: PyTorch users pass 255.
    let ignoring = config(0.0, Some(255));
    let indices = Targets::Indices(&[0, 255, 1]);
    assert!(cross_entropy(&ignoring, [3, 2], &[0.0; 6], indices, &mut probs).is_ok());
}

#[test]
fn settings_and_lengths_are_checked() {
    let mut probs = [0.0; 4];
    let indices = Targets::Indices(&[0, 1]);
    for smoothing in [-0.1, 1.1, f64::NAN] {
        let got = cross_entropy(
            &config(smoothing, None),
            [2, 2],
            &[0.0; 4],
            indices,
            &mut probs,
        );
        assert!(matches!(
            got,
            Err(Error::Parameter {
                parameter: "label_smoothing",
                ..
            })
        ));
    }
    let none = config(0.0, None);
    let soft = Targets::Soft(&[0.5; 4]);
    let got = cross_entropy(&config(0.0, Some(0)), [2, 2], &[0.0; 4], soft, &mut probs);
    assert!(matches!(got, Err(Error::Geometry { .. })));
    assert!(cross_entropy(&none, [2, 2], &[0.0; 3], indices, &mut probs).is_err());
    assert!(cross_entropy(&none, [2, 2], &[0.0; 4], Targets::Indices(&[0]), &mut probs).is_err());
    assert!(
        cross_entropy(
            &none,
            [2, 2],
            &[0.0; 4],
            Targets::Soft(&[0.5; 3]),
            &mut probs
        )
        .is_err()
    );
    assert!(cross_entropy(&none, [2, 0], &[], indices, &mut []).is_err());
    assert!(softmax([2, 2], &[0.0; 4], &mut probs[..3]).is_err());
    assert!(softmax_backward([2, 2], &[0.0; 3], &[0.0; 4], &mut probs).is_err());
}

#[test]
fn bits_depend_neither_on_threads_nor_on_the_width_of_a_register() {
    let shape @ [rows, cols] = [1_003, 117];
    let (x, dy) = (
        data(6, rows * cols, -5.0, 5.0),
        data(7, rows * cols, -1.0, 1.0),
    );
    let indices: Vec<u32> = (0..rows as u32).map(|row| row * 31 % cols as u32).collect();
    let compute = || {
        let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        softmax(shape, &x, &mut y).unwrap();
        softmax_backward(shape, &y, &dy, &mut dx).unwrap();
        let (mut log_y, mut log_dx) = (y.clone(), dx.clone());
        log_softmax(shape, &x, &mut log_y).unwrap();
        log_softmax_backward(shape, &log_y, &dy, &mut log_dx).unwrap();
        let config = config(0.1, Some(3));
        let (loss, gradient) = loss_and_gradient(&config, shape, &x, Targets::Indices(&indices));
        [y, dx, log_y, log_dx, vec![loss], gradient].concat()
    };
    same_bits_for_any_threads(compute);
    same_bits_for_fused_levels(compute);
}
