//! Norms against plain references in `f64`, their gradients against central differences.

mod support;

use support::*;
use tallow_kernels::norm::{
    batch_norm_apply, batch_norm_backward, batch_norm_backward_eval, batch_norm_eval,
    batch_norm_gradient_sums, batch_norm_input_gradient, batch_norm_statistics, batch_norm_sums,
    batch_norm_train, group_norm, group_norm_backward, layer_norm, layer_norm_backward,
    update_running,
};
use tallow_kernels::{ChannelShape, Error};

const EPS: f64 = 1e-5;

/// Normalises the sets of elements that `set_of` puts together, with `affine(i)` giving the place
/// of element `i`'s gamma and beta.
fn reference(
    x: &[f64],
    sets: usize,
    set_of: impl Fn(usize) -> usize,
    gamma: &[f64],
    beta: &[f64],
    affine: impl Fn(usize) -> usize,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut count, mut mean, mut var) = (vec![0.0; sets], vec![0.0; sets], vec![0.0; sets]);
    for (i, x) in x.iter().enumerate() {
        count[set_of(i)] += 1.0;
        mean[set_of(i)] += x;
    }
    mean.iter_mut()
        .zip(&count)
        .for_each(|(mean, count)| *mean /= count);
    for (i, x) in x.iter().enumerate() {
        var[set_of(i)] += (x - mean[set_of(i)]).powi(2);
    }
    var.iter_mut()
        .zip(&count)
        .for_each(|(var, count)| *var /= count);
    let y = x.iter().enumerate().map(|(i, x)| {
        let set = set_of(i);
        (x - mean[set]) / (var[set] + EPS).sqrt() * gamma[affine(i)] + beta[affine(i)]
    });
    (y.collect(), mean, var)
}

fn channel_of(shape: ChannelShape) -> impl Fn(usize) -> usize + Copy {
    move |i| i / shape.spatial % shape.channels
}

fn len(shape: ChannelShape) -> usize {
    shape.batch * shape.channels * shape.spatial
}

struct Trained {
    y: Vec<f32>,
    mean: Vec<f32>,
    invstd: Vec<f32>,
    unbiased: Vec<f32>,
}

fn train(shape: ChannelShape, x: &[f32], gamma: &[f32], beta: &[f32]) -> Trained {
    let c = shape.channels;
    let (mut mean, mut invstd, mut unbiased) = (vec![0.0; c], vec![0.0; c], vec![0.0; c]);
    let mut y = vec![f32::NAN; x.len()];
    let (m, s, v) = (&mut mean, &mut invstd, &mut unbiased);
    batch_norm_train(&shape, x, gamma, beta, EPS, &mut y, m, s, v).unwrap();
    Trained {
        y,
        mean,
        invstd,
        unbiased,
    }
}

const SHAPES: [[usize; 3]; 8] = [
    [2, 1, 1],
    [7, 5, 1],
    [3, 4, 3],
    [2, 3, 16],
    [4, 33, 17],
    [1, 3, 5000],
    [9, 70, 49],
    [5, 2, 333],
];

#[test]
fn batch_norm_normalises_each_channel_by_its_own_statistics() {
    at_every_level(|_| {
        for [n, c, s] in SHAPES {
            let shape = ChannelShape::new(n, c, s);
            let x = data(1, len(shape), -2.0, 3.0);
            let (gamma, beta) = (data(2, c, 0.5, 2.0), data(3, c, -1.0, 1.0));
            let got = train(shape, &x, &gamma, &beta);
            let channel = channel_of(shape);
            let (y, mean, var) = reference(
                &widen(&x),
                c,
                channel,
                &widen(&gamma),
                &widen(&beta),
                channel,
            );
            assert_close(&got.y, &y, 2e-5);
            assert_close(&got.mean, &mean, 1e-6);
            let invstd: Vec<f64> = var.iter().map(|var| 1.0 / (var + EPS).sqrt()).collect();
            assert_close(&got.invstd, &invstd, 1e-5);
            let m = (n * s) as f64;
            let unbiased: Vec<f64> = var.iter().map(|var| var * m / (m - 1.0)).collect();
            assert_close(&got.unbiased, &unbiased, 1e-6);
        }
    });
}

#[test]
fn a_mean_far_from_zero_costs_the_variance_no_digits() {
    at_every_level(|_| {
        let shape = ChannelShape::new(8, 3, 1024);
        let x: Vec<f32> = data(4, len(shape), -1.0, 1.0)
            .iter()
            .map(|x| x + 1000.0)
            .collect();
        let got = train(shape, &x, &[1.0; 3], &[0.0; 3]);
        let channel = channel_of(shape);
        let (y, _, var) = reference(&widen(&x), 3, channel, &[1.0; 3], &[0.0; 3], channel);
        let m = 8.0 * 1024.0;
        let unbiased: Vec<f64> = var.iter().map(|var| var * m / (m - 1.0)).collect();
        for (found, expected) in got.unbiased.iter().zip(unbiased) {
            assert!(
                (f64::from(*found) / expected - 1.0).abs() < 1e-6,
                "{found} for {expected}"
            );
        }
        // The saved mean is rounded to f32: 3e-5 at 1000.
        assert_close(&got.y, &y, 1e-4);

        let (mut y, mut mean, mut invstd) = ([0.0; 4096], [0.0; 1], [0.0; 1]);
        layer_norm(
            [1, 4096],
            &x[..4096],
            &[1.0; 4096],
            &[0.0; 4096],
            EPS,
            &mut y,
            &mut mean,
            &mut invstd,
        )
        .unwrap();
        let one = |_| 0;
        let (_, _, var) = reference(&widen(&x[..4096]), 1, one, &[1.0], &[0.0], one);
        assert!((f64::from(invstd[0]) * (var[0] + EPS).sqrt() - 1.0).abs() < 1e-6);
    });
}

#[test]
fn a_constant_channel_gives_beta() {
    let shape = ChannelShape::new(4, 1, 9);
    let got = train(shape, &[0.1; 36], &[3.0], &[0.25]);
    assert_close(&got.y, &[0.25; 36], 1e-5);
    assert!(got.unbiased[0] >= 0.0 && got.unbiased[0] < 1e-12);
}

#[test]
fn batch_norm_gradients_follow_central_differences() {
    at_every_level(|_| {
        for [n, c, s] in [[2, 1, 1], [7, 5, 1], [3, 4, 3], [2, 3, 16], [2, 2, 37]] {
            let shape = ChannelShape::new(n, c, s);
            let (x, dy) = (
                data(5, len(shape), -2.0, 2.0),
                data(6, len(shape), -1.0, 1.0),
            );
            let (gamma, beta) = (data(7, c, 0.5, 2.0), data(8, c, -1.0, 1.0));
            let saved = train(shape, &x, &gamma, &beta);
            let mut dx = vec![f32::NAN; x.len()];
            let (mut dgamma, mut dbeta) = (vec![f32::NAN; c], vec![f32::NAN; c]);
            let (mean, invstd) = (&saved.mean, &saved.invstd);
            let (g, b) = (&mut dgamma, &mut dbeta);
            batch_norm_backward(&shape, &x, &dy, &gamma, mean, invstd, &mut dx, g, b).unwrap();

            let channel = channel_of(shape);
            let loss = |x: &[f64], gamma: &[f64], beta: &[f64]| {
                weighted(&reference(x, c, channel, gamma, beta, channel).0, &dy)
            };
            let (wx, wg, wb) = (widen(&x), widen(&gamma), widen(&beta));
            assert_close(&dx, &numeric_gradient(&x, |x| loss(x, &wg, &wb)), 3e-5);
            assert_close(
                &dgamma,
                &numeric_gradient(&gamma, |g| loss(&wx, g, &wb)),
                1e-5,
            );
            assert_close(
                &dbeta,
                &numeric_gradient(&beta, |b| loss(&wx, &wg, b)),
                1e-5,
            );
        }
    });
}

#[test]
fn batch_norm_in_parts_is_that_of_the_whole() {
    let shape = ChannelShape::new(6, 5, 9);
    let [x, dy] = [3, 4].map(|seed| data(seed, len(shape), -2.0, 2.0));
    let [gamma, beta] = [5, 6].map(|seed| data(seed, 5, 0.5, 2.0));
    let whole = train(shape, &x, &gamma, &beta);
    let mut gradients = [vec![0.0; x.len()], vec![0.0; 5], vec![0.0; 5]];
    let [dx, dgamma, dbeta] = &mut gradients;
    let (mean, invstd) = (&whole.mean, &whole.invstd);
    batch_norm_backward(&shape, &x, &dy, &gamma, mean, invstd, dx, dgamma, dbeta).unwrap();

    // Two samples, and the other four.
    let cut = 2 * 5 * 9;
    let parts = [(2, 0..cut), (4, cut..x.len())]
        .map(|(samples, at)| (ChannelShape::new(samples, 5, 9), at));
    let mut sums = [vec![0f64; 5], vec![0f64; 5]];
    let mut joint = [vec![0f32; 5], vec![0f32; 5]];
    for (shape, at) in &parts {
        let [mut sum, mut squares] = [(); 2].map(|()| vec![f64::NAN; 5]);
        batch_norm_sums(shape, &x[at.clone()], &mut sum, &mut squares).unwrap();
        let [mut dgamma, mut dbeta] = [(); 2].map(|()| vec![f32::NAN; 5]);
        let (x, dy) = (&x[at.clone()], &dy[at.clone()]);
        batch_norm_gradient_sums(shape, x, dy, mean, invstd, &mut dgamma, &mut dbeta).unwrap();
        for channel in 0..5 {
            sums[0][channel] += sum[channel];
            sums[1][channel] += squares[channel];
            joint[0][channel] += dgamma[channel];
            joint[1][channel] += dbeta[channel];
        }
    }
    let [mut m, mut s, mut v] = [(); 3].map(|()| vec![f32::NAN; 5]);
    let of_all = [&sums[0][..], &sums[1][..]];
    batch_norm_statistics(54.0, of_all, EPS, &mut m, &mut s, &mut v).unwrap();
    let close = |ours: &[f32], theirs: &[f32]| {
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
        assert!(ours.iter().zip(theirs).all(near), "{ours:?} and {theirs:?}");
    };
    close(&m, &whole.mean);
    close(&s, &whole.invstd);
    close(&v, &whole.unbiased);
    close(&joint[0], dgamma);
    close(&joint[1], dbeta);
    for (shape, at) in &parts {
        let mut y = vec![f32::NAN; at.len()];
        batch_norm_apply(shape, &x[at.clone()], &gamma, &beta, &m, &s, &mut y).unwrap();
        close(&y, &whole.y[at.clone()]);
        let share = shape.batch as f32 / 6.0;
        let scaled = joint
            .clone()
            .map(|sum| sum.iter().map(|sum| sum * share).collect::<Vec<_>>());
        let mut part = vec![f32::NAN; at.len()];
        let (statistics, scaled) = ([&m[..], &s[..]], [&scaled[0][..], &scaled[1][..]]);
        let (x, dy) = (&x[at.clone()], &dy[at.clone()]);
        batch_norm_input_gradient(shape, x, dy, &gamma, statistics, scaled, &mut part).unwrap();
        close(&part, &dx[at.clone()]);
    }
    assert!(batch_norm_statistics(1.0, of_all, EPS, &mut m, &mut s, &mut v).is_err());
}

#[test]
fn batch_norm_in_evaluation_uses_running_statistics_in_both_directions() {
    at_every_level(|_| {
        let (c, shape) = (5, ChannelShape::new(3, 5, 11));
        let (x, dy) = (
            data(9, len(shape), -2.0, 2.0),
            data(10, len(shape), -1.0, 1.0),
        );
        let (gamma, beta) = (data(11, c, 0.5, 2.0), data(12, c, -1.0, 1.0));
        let (mean, var) = (data(13, c, -1.0, 1.0), data(14, c, 0.1, 2.0));
        let mut y = vec![f32::NAN; x.len()];
        batch_norm_eval(&shape, &x, &gamma, &beta, &mean, &var, EPS, &mut y).unwrap();
        let formula = |x: &[f64], gamma: &[f64], beta: &[f64]| -> Vec<f64> {
            let channel = channel_of(shape);
            let y = x.iter().enumerate().map(|(i, x)| {
                let c = channel(i);
                let (mean, var) = (f64::from(mean[c]), f64::from(var[c]));
                (x - mean) / (var + EPS).sqrt() * gamma[c] + beta[c]
            });
            y.collect()
        };
        let (wx, wg, wb) = (widen(&x), widen(&gamma), widen(&beta));
        assert_close(&y, &formula(&wx, &wg, &wb), 1e-6);

        let mut dx = vec![f32::NAN; x.len()];
        let (mut dgamma, mut dbeta) = (vec![f32::NAN; c], vec![f32::NAN; c]);
        let (g, b) = (&mut dgamma, &mut dbeta);
        batch_norm_backward_eval(&shape, &x, &dy, &gamma, &mean, &var, EPS, &mut dx, g, b).unwrap();
        let loss = |y: Vec<f64>| weighted(&y, &dy);
        assert_close(
            &dx,
            &numeric_gradient(&x, |x| loss(formula(x, &wg, &wb))),
            1e-5,
        );
        assert_close(
            &dgamma,
            &numeric_gradient(&gamma, |g| loss(formula(&wx, g, &wb))),
            1e-5,
        );
        assert_close(
            &dbeta,
            &numeric_gradient(&beta, |b| loss(formula(&wx, &wg, b))),
            1e-5,
        );
    });
}

#[test]
fn running_statistics_move_by_the_momentum() {
    let mut running = [1.0, -2.0];
    update_running(0.1, &[3.0, 0.0], &mut running).unwrap();
    assert_close(&running, &[1.2, -1.8], 1e-6);
    assert!(update_running(0.1, &[3.0], &mut running).is_err());
}

#[test]
fn layer_norm_and_its_gradients_follow_the_formula() {
    at_every_level(|_| {
        for [rows, cols] in [[1, 2], [3, 5], [4, 16], [5, 67], [2, 130]] {
            let (x, dy) = (
                data(15, rows * cols, -2.0, 2.0),
                data(16, rows * cols, -1.0, 1.0),
            );
            let (gamma, beta) = (data(17, cols, 0.5, 2.0), data(18, cols, -1.0, 1.0));
            let (mut mean, mut invstd) = (vec![0.0; rows], vec![0.0; rows]);
            let mut y = vec![f32::NAN; x.len()];
            let shape = [rows, cols];
            layer_norm(
                shape,
                &x,
                &gamma,
                &beta,
                EPS,
                &mut y,
                &mut mean,
                &mut invstd,
            )
            .unwrap();
            let formula = |x: &[f64], gamma: &[f64], beta: &[f64]| {
                reference(x, rows, |i| i / cols, gamma, beta, |i| i % cols).0
            };
            let (wx, wg, wb) = (widen(&x), widen(&gamma), widen(&beta));
            assert_close(&y, &formula(&wx, &wg, &wb), 5e-6);

            let mut dx = vec![f32::NAN; x.len()];
            let (mut dgamma, mut dbeta) = (vec![f32::NAN; cols], vec![f32::NAN; cols]);
            let (g, b) = (&mut dgamma, &mut dbeta);
            layer_norm_backward(shape, &x, &dy, &gamma, &mean, &invstd, &mut dx, g, b).unwrap();
            let loss = |y: Vec<f64>| weighted(&y, &dy);
            assert_close(
                &dx,
                &numeric_gradient(&x, |x| loss(formula(x, &wg, &wb))),
                3e-5,
            );
            assert_close(
                &dgamma,
                &numeric_gradient(&gamma, |g| loss(formula(&wx, g, &wb))),
                1e-5,
            );
            assert_close(
                &dbeta,
                &numeric_gradient(&beta, |b| loss(formula(&wx, &wg, b))),
                1e-5,
            );
        }
    });
}

#[test]
fn group_norm_and_its_gradients_follow_the_formula() {
    at_every_level(|_| {
        for ([n, c, s], groups) in [
            ([2, 4, 1], 2),
            ([3, 6, 5], 3),
            ([2, 6, 17], 1),
            ([2, 4, 20], 4),
            ([1, 40, 3], 8),
        ] {
            let shape = ChannelShape::new(n, c, s);
            let (x, dy) = (
                data(19, len(shape), -2.0, 2.0),
                data(20, len(shape), -1.0, 1.0),
            );
            let (gamma, beta) = (data(21, c, 0.5, 2.0), data(22, c, -1.0, 1.0));
            let (mut mean, mut invstd) = (vec![0.0; n * groups], vec![0.0; n * groups]);
            let mut y = vec![f32::NAN; x.len()];
            let (m, i) = (&mut mean, &mut invstd);
            group_norm(&shape, groups, &x, &gamma, &beta, EPS, &mut y, m, i).unwrap();
            let group_len = c / groups * s;
            let channel = channel_of(shape);
            let formula = |x: &[f64], gamma: &[f64], beta: &[f64]| {
                reference(x, n * groups, |i| i / group_len, gamma, beta, channel).0
            };
            let (wx, wg, wb) = (widen(&x), widen(&gamma), widen(&beta));
            assert_close(&y, &formula(&wx, &wg, &wb), 1e-5);

            let mut dx = vec![f32::NAN; x.len()];
            let (mut dgamma, mut dbeta) = (vec![f32::NAN; c], vec![f32::NAN; c]);
            let (g, b) = (&mut dgamma, &mut dbeta);
            group_norm_backward(
                &shape, groups, &x, &dy, &gamma, &mean, &invstd, &mut dx, g, b,
            )
            .unwrap();
            let loss = |y: Vec<f64>| weighted(&y, &dy);
            assert_close(
                &dx,
                &numeric_gradient(&x, |x| loss(formula(x, &wg, &wb))),
                3e-5,
            );
            assert_close(
                &dgamma,
                &numeric_gradient(&gamma, |g| loss(formula(&wx, g, &wb))),
                1e-5,
            );
            assert_close(
                &dbeta,
                &numeric_gradient(&beta, |b| loss(formula(&wx, &wg, b))),
                1e-5,
            );
        }
    });
}

#[test]
fn bits_depend_neither_on_threads_nor_on_the_width_of_a_register() {
    // Few large maps, many small maps, and maps of one element.
    for [n, c, s] in [[6, 3, 9_001], [40, 130, 49], [64, 700, 1]] {
        let shape = ChannelShape::new(n, c, s);
        let (x, dy) = (
            data(23, len(shape), -1.0, 2.0),
            data(24, len(shape), -1.0, 1.0),
        );
        let (gamma, beta) = (data(25, c, 0.5, 2.0), data(26, c, -1.0, 1.0));
        let batch = || {
            let t = train(shape, &x, &gamma, &beta);
            let mut dx = vec![0.0; x.len()];
            let (mut dgamma, mut dbeta) = (vec![0.0; c], vec![0.0; c]);
            let (g, b) = (&mut dgamma, &mut dbeta);
            batch_norm_backward(&shape, &x, &dy, &gamma, &t.mean, &t.invstd, &mut dx, g, b)
                .unwrap();
            [t.y, t.mean, t.invstd, t.unbiased, dx, dgamma, dbeta].concat()
        };
        same_bits_for_any_threads(batch);
        same_bits_for_fused_levels(batch);
    }
    let [rows, cols] = [1_301, 193];
    let (x, dy) = (
        data(27, rows * cols, -1.0, 2.0),
        data(28, rows * cols, -1.0, 1.0),
    );
    let (gamma, beta) = (data(29, cols, 0.5, 2.0), data(30, cols, -1.0, 1.0));
    let layer = || {
        let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        let (mut mean, mut invstd) = (vec![0.0; rows], vec![0.0; rows]);
        let (mut dgamma, mut dbeta) = (vec![0.0; cols], vec![0.0; cols]);
        let shape = [rows, cols];
        layer_norm(
            shape,
            &x,
            &gamma,
            &beta,
            EPS,
            &mut y,
            &mut mean,
            &mut invstd,
        )
        .unwrap();
        let (g, b) = (&mut dgamma, &mut dbeta);
        layer_norm_backward(shape, &x, &dy, &gamma, &mean, &invstd, &mut dx, g, b).unwrap();
        [y, mean, invstd, dx, dgamma, dbeta].concat()
    };
    same_bits_for_any_threads(layer);
    same_bits_for_fused_levels(layer);
    let (shape, groups) = (ChannelShape::new(1_301, 193, 1), 193);
    let group = || {
        let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        let (mut mean, mut invstd) = (vec![0.0; rows * groups], vec![0.0; rows * groups]);
        let (mut dgamma, mut dbeta) = (vec![0.0; cols], vec![0.0; cols]);
        group_norm(
            &shape,
            groups,
            &x,
            &gamma,
            &beta,
            EPS,
            &mut y,
            &mut mean,
            &mut invstd,
        )
        .unwrap();
        let (g, b) = (&mut dgamma, &mut dbeta);
        group_norm_backward(
            &shape, groups, &x, &dy, &gamma, &mean, &invstd, &mut dx, g, b,
        )
        .unwrap();
        [y, dx, dgamma, dbeta].concat()
    };
    same_bits_for_any_threads(group);
}

#[test]
fn what_has_no_statistics_is_refused() {
    let one = ChannelShape::new(1, 2, 1);
    let mut out = [[0.0; 2]; 4];
    let [y, mean, invstd, var] = &mut out;
    let single = batch_norm_train(
        &one, &[1.0; 2], &[1.0; 2], &[0.0; 2], EPS, y, mean, invstd, var,
    );
    assert!(matches!(single, Err(Error::Geometry { .. })));
    assert!(
        single
            .unwrap_err()
            .to_string()
            .contains("running statistics")
    );

    let shape = ChannelShape::new(2, 2, 1);
    let mut y = [0.0; 4];
    let eps = batch_norm_eval(
        &shape, &[0.0; 4], &[1.0; 2], &[0.0; 2], mean, var, -1.0, &mut y,
    );
    assert!(matches!(
        eps,
        Err(Error::Parameter {
            parameter: "eps",
            ..
        })
    ));
    let short = batch_norm_eval(
        &shape, &[0.0; 3], &[1.0; 2], &[0.0; 2], mean, var, EPS, &mut y,
    );
    assert!(matches!(
        short,
        Err(Error::Length {
            operand: "x",
            expected: 4,
            found: 3,
            ..
        })
    ));
    for groups in [0, 3] {
        let shape = ChannelShape::new(1, 2, 2);
        let (m, i) = (&mut mean[..], &mut invstd[..]);
        let odd = group_norm(
            &shape, groups, &[0.0; 4], &[1.0; 2], &[0.0; 2], EPS, &mut y, m, i,
        );
        assert!(
            matches!(odd, Err(Error::Geometry { .. })),
            "{groups} groups"
        );
    }
}
