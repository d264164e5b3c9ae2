//! Batch norm on channels-last data against plain loops in f64, at every level, for any number of threads.

mod support;

use proptest::prelude::*;
use support::*;
use tallow_kernels::activation::{self, Activation};
use tallow_kernels::channels_last::norm::*;
use tallow_kernels::error::Error;
use tallow_kernels::workspace::Workspace;

const EPS: f64 = 1e-5;

/// A workspace full of values that must not leak into results.
fn dirty_workspace() -> Workspace {
    let workspace = Workspace::new();
    let dirty: Vec<_> = (0..4)
        .map(|_| {
            let mut scratch = workspace.take(50_000);
            scratch.fill(f32::NAN);
            scratch
        })
        .collect();
    drop(dirty);
    workspace
}

/// Everything that the passes read.
struct Case {
    rows: usize,
    channels: usize,
    clamp: Clamp,
    x: Vec<f32>,
    residual: Vec<f32>,
    dy: Vec<f32>,
    add: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

/// What the passes of one training step write.
#[derive(Default)]
struct Step {
    mean: Vec<f32>,
    var: Vec<f32>,
    y: Vec<f32>,
    dbias: Vec<f32>,
    dweight: Vec<f32>,
    dx: Vec<f32>,
    masked: Vec<f32>,
}

impl Step {
    fn all(self) -> Vec<f32> {
        [
            self.mean,
            self.var,
            self.y,
            self.dbias,
            self.dweight,
            self.dx,
            self.masked,
        ]
        .concat()
    }
}

impl Case {
    fn new(rows: usize, channels: usize, clamp: Clamp) -> Self {
        let len = rows * channels;
        Self {
            rows,
            channels,
            clamp,
            x: data(1, len, -3.0, 5.0),
            residual: data(2, len, -2.0, 4.0),
            dy: data(3, len, -1.0, 1.0),
            add: data(4, len, -1.0, 1.0),
            weight: data(5, channels, 0.5, 2.0),
            bias: data(6, channels, -1.0, 2.0),
        }
    }

    fn run(&self) -> Step {
        let workspace = dirty_workspace();
        let (channels, len) = (self.channels, self.x.len());
        let [
            mut mean,
            mut var,
            mut scale,
            mut shift,
            mut dbias,
            mut dweight,
        ] = [0; 6].map(|_| vec![f32::NAN; channels]);
        let [mut y, mut dx, mut masked] = [0; 3].map(|_| vec![f32::NAN; len]);
        batch_stats(channels, &self.x, &mut mean, &mut var, &workspace).unwrap();
        let (mean_of, var_of) = (mean.clone(), var.clone());
        let statistics = Statistics {
            mean: &mean_of,
            var: &var_of,
            eps: EPS,
        };
        let (weight, bias) = (Some(&self.weight[..]), Some(&self.bias[..]));
        fold(statistics, weight, bias, &mut scale, &mut shift).unwrap();
        let affine = Affine {
            scale: &scale,
            shift: &shift,
        };
        let residual = Residual::Plain(&self.residual);
        normalize(channels, &self.x, affine, residual, self.clamp, &mut y).unwrap();
        let mask = self.clamp.mask(&y);
        backward_sums(
            channels,
            &self.dy,
            mask,
            &self.x,
            statistics,
            &mut dbias,
            &mut dweight,
            &workspace,
        )
        .unwrap();
        let sums = Sums {
            g: &dbias,
            g_xhat: &dweight,
        };
        backward_input(
            channels,
            &self.dy,
            mask,
            &self.x,
            statistics,
            weight,
            sums,
            Some(&self.add),
            &mut dx,
            Some(&mut masked),
            &workspace,
        )
        .unwrap();
        let mut in_place = self.dy.clone();
        let mut masked_too = vec![f32::NAN; len];
        backward_input_in_place(
            channels,
            mask,
            &self.x,
            statistics,
            weight,
            sums,
            Some(&self.add),
            &mut in_place,
            Some(&mut masked_too),
            &workspace,
        )
        .unwrap();
        assert!(bits(&in_place) == bits(&dx) && bits(&masked_too) == bits(&masked));
        Step {
            mean,
            var,
            y,
            dbias,
            dweight,
            dx,
            masked,
        }
    }

    /// The same in plain loops, given the output that decides where gradients pass.
    fn reference(&self, y: &[f32]) -> [Vec<f64>; 7] {
        let (rows, channels) = (self.rows, self.channels);
        let count = rows as f64;
        let mut out: [Vec<f64>; 7] = Default::default();
        for i in [0, 1, 3, 4] {
            out[i] = vec![0.0; channels];
        }
        for i in [2, 5, 6] {
            out[i] = vec![0.0; rows * channels];
        }
        for c in 0..channels {
            let at = |row: usize| row * channels + c;
            let x = |row: usize| f64::from(self.x[at(row)]);
            let mean = (0..rows).map(x).sum::<f64>() / count;
            let var = (0..rows).map(|row| (x(row) - mean).powi(2)).sum::<f64>() / count;
            let invstd = 1.0 / (var + EPS).sqrt();
            let xhat = |row: usize| (x(row) - mean) * invstd;
            let g = |row: usize| match passes(self.clamp, y[at(row)]) {
                true => f64::from(self.dy[at(row)]),
                false => 0.0,
            };
            let (sum, dot): (f64, f64) = (
                (0..rows).map(g).sum(),
                (0..rows).map(|row| g(row) * xhat(row)).sum(),
            );
            (out[0][c], out[1][c], out[3][c], out[4][c]) = (mean, var, sum, dot);
            let (weight, bias) = (f64::from(self.weight[c]), f64::from(self.bias[c]));
            for row in 0..rows {
                let value = xhat(row) * weight + bias + f64::from(self.residual[at(row)]);
                out[2][at(row)] = clamped(self.clamp, value);
                let inner = g(row) - sum / count - xhat(row) * dot / count;
                out[5][at(row)] = weight * invstd * inner + f64::from(self.add[at(row)]);
                out[6][at(row)] = g(row);
            }
        }
        out
    }
}

fn passes(clamp: Clamp, y: f32) -> bool {
    match clamp {
        Clamp::None => true,
        Clamp::Relu => y > 0.0,
        Clamp::Relu6 => y > 0.0 && y < 6.0,
    }
}

fn clamped(clamp: Clamp, v: f64) -> f64 {
    match clamp {
        Clamp::None => v,
        Clamp::Relu => v.max(0.0),
        Clamp::Relu6 => v.clamp(0.0, 6.0),
    }
}

fn check(rows: usize, channels: usize, clamp: Clamp) {
    let case = Case::new(rows, channels, clamp);
    at_every_level(|_| {
        let step = case.run();
        let [mean, var, y, dbias, dweight, dx, masked] = case.reference(&step.y);
        assert_close(&step.mean, &mean, 1e-6);
        assert_close(&step.var, &var, 5e-6);
        // With few rows a variance near zero makes everything else large.
        let tolerance = if rows < 4 { 5e-3 } else { 2e-5 };
        assert_close(&step.y, &y, tolerance);
        assert_close(&step.dbias, &dbias, 1e-5);
        assert_close(&step.dweight, &dweight, tolerance.max(1e-4));
        assert_close(&step.dx, &dx, tolerance.max(2e-5));
        assert_close(&step.masked, &masked, 0.0);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_training_step_is_the_plain_formula(
        rows in 4..80usize,
        channels in prop_oneof![1..40usize, 250..270usize, 500..530usize],
        clamp in prop_oneof![Just(Clamp::None), Just(Clamp::Relu), Just(Clamp::Relu6)],
    ) {
        check(rows, channels, clamp);
    }
}

#[test]
fn one_row_and_long_columns_are_the_plain_formula() {
    check(1, 5, Clamp::Relu);
    check(1, 600, Clamp::None);
    check(2, 3, Clamp::Relu6);
    check(30_001, 3, Clamp::Relu);
    check(2_003, 24, Clamp::Relu6);
    check(150, 1100, Clamp::Relu);
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    for (rows, channels) in [(2_600, 64), (200, 700), (25_000, 7)] {
        let case = Case::new(rows, channels, Clamp::Relu);
        same_bits_for_any_threads(|| case.run().all());
    }
}

#[test]
fn levels_that_fuse_have_the_same_bits() {
    let case = Case::new(1_000, 37, Clamp::Relu6);
    same_bits_for_fused_levels(|| case.run().all());
}

/// Means far from zero and a first row far from the mean leave the variance its digits.
#[test]
fn statistics_keep_their_digits() {
    let (rows, channels) = (20_000, 9);
    let workspace = dirty_workspace();
    // A first row that is far out leaves all that its block's 64 rows can lose.
    for (mean, first) in [(1000.0, 1000.0), (-3e4, -3e4), (0.0, 1000.0), (5.0, -1e6)] {
        let mut x = data(9, rows * channels, mean - 1.0, mean + 1.0);
        x[..channels].fill(first);
        let outlier = first != mean;
        let at = |row: usize, c: usize| f64::from(x[row * channels + c]);
        let moments: Vec<[f64; 2]> = (0..channels)
            .map(|c| {
                let mean = (0..rows).map(|row| at(row, c)).sum::<f64>() / rows as f64;
                let squares = (0..rows).map(|row| (at(row, c) - mean).powi(2));
                [mean, squares.sum::<f64>() / rows as f64]
            })
            .collect();
        at_every_level(|level| {
            let (mut found_mean, mut found_var) = (vec![0.0; channels], vec![0.0; channels]);
            batch_stats(channels, &x, &mut found_mean, &mut found_var, &workspace).unwrap();
            for c in 0..channels {
                let [mean, var] = moments[c];
                let error = (f64::from(found_mean[c]) - mean).abs();
                assert!(error <= 1e-7 * mean.abs() + 1e-6 * var.sqrt());
                let error = (f64::from(found_var[c]) - var).abs() / var;
                let tolerance = if outlier { 1e-4 } else { 5e-6 };
                assert!(
                    error < tolerance,
                    "mean {mean} at {level}: variance off by {error}"
                );
            }
        });
    }
}

#[test]
fn values_and_gradients_at_the_edges_are_the_activations() {
    let x = [
        -1.0,
        -0.0,
        0.0,
        1e-30,
        3.0,
        6.0,
        6.5,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let dy = data(1, x.len(), 0.5, 1.0);
    let affine = Affine {
        scale: &[1.0],
        shift: &[0.0],
    };
    for (clamp, act) in [
        (Clamp::Relu, Activation::Relu),
        (Clamp::Relu6, Activation::Relu6),
    ] {
        at_every_level(|_| {
            let [mut y, mut dx, mut expected] = [[0.0f32; 10]; 3];
            // x + 0 makes 0 of -0, as any norm does.
            let x0 = x.map(|x| x + 0.0);
            activation::forward(act, &x0, &mut expected).unwrap();
            normalize(1, &x, affine, Residual::None, clamp, &mut y).unwrap();
            assert_eq!(bits(&y), bits(&expected));
            activation::backward(act, &x0, &dy, &mut expected).unwrap();
            backward_frozen(1, &dy, clamp.mask(&y), &[1.0], None, &mut dx, None).unwrap();
            assert_eq!(bits(&dx), bits(&expected));
        });
    }
}

#[test]
fn a_residual_may_be_normalised_too_and_y_may_overwrite_x() {
    for (rows, channels) in [(50, 6), (40, 64), (70, 600)] {
        let case = Case::new(rows, channels, Clamp::Relu);
        let [scale, shift, scale2, shift2] = [11, 12, 13, 14].map(|i| data(i, channels, -2.0, 2.0));
        let affine = Affine {
            scale: &scale,
            shift: &shift,
        };
        let other = Affine {
            scale: &scale2,
            shift: &shift2,
        };
        for residual in [
            Residual::None,
            Residual::Plain(&case.residual),
            Residual::Normalized(&case.residual, other),
        ] {
            let expected: Vec<f64> = (0..rows * channels)
                .map(|i| {
                    let of = |x: f32, affine: Affine<'_>| {
                        f64::from(x) * f64::from(affine.scale[i % channels])
                            + f64::from(affine.shift[i % channels])
                    };
                    let r = match residual {
                        Residual::None => 0.0,
                        Residual::Plain(r) => f64::from(r[i]),
                        Residual::Normalized(r, affine) => of(r[i], affine),
                    };
                    (of(case.x[i], affine) + r).max(0.0)
                })
                .collect();
            at_every_level(|_| {
                let mut y = vec![f32::NAN; case.x.len()];
                normalize(channels, &case.x, affine, residual, Clamp::Relu, &mut y).unwrap();
                assert_close(&y, &expected, 2e-6);
                let mut in_place = case.x.clone();
                normalize_in_place(channels, affine, residual, Clamp::Relu, &mut in_place).unwrap();
                assert!(bits(&in_place) == bits(&y));
            });
        }
    }
}

#[test]
fn frozen_statistics_scale_the_gradient() {
    let (rows, channels) = (90, 20);
    let case = Case::new(rows, channels, Clamp::Relu6);
    let y = data(8, rows * channels, -1.0, 7.0).map_into(|y: f32| y.clamp(0.0, 6.0));
    let mask = Clamp::Relu6.mask(&y);
    let expected_g: Vec<f64> = (0..y.len())
        .map(|i| match passes(Clamp::Relu6, y[i]) {
            true => f64::from(case.dy[i]),
            false => 0.0,
        })
        .collect();
    for add in [None, Some(&case.add[..])] {
        let expected: Vec<f64> = (0..y.len())
            .map(|i| {
                expected_g[i] * f64::from(case.weight[i % channels])
                    + add.map_or(0.0, |add| f64::from(add[i]))
            })
            .collect();
        at_every_level(|_| {
            let (mut dx, mut masked) = (vec![f32::NAN; y.len()], vec![f32::NAN; y.len()]);
            let scale = &case.weight[..];
            backward_frozen(
                channels,
                &case.dy,
                mask,
                scale,
                add,
                &mut dx,
                Some(&mut masked),
            )
            .unwrap();
            assert_close(&dx, &expected, 1e-6);
            assert_close(&masked, &expected_g, 0.0);
            let mut in_place = case.dy.clone();
            backward_frozen_in_place(channels, mask, scale, add, &mut in_place, None).unwrap();
            assert!(bits(&in_place) == bits(&dx));
        });
    }
}

trait MapInto {
    fn map_into(self, f: impl Fn(f32) -> f32) -> Self;
}

impl MapInto for Vec<f32> {
    fn map_into(self, f: impl Fn(f32) -> f32) -> Self {
        self.into_iter().map(f).collect()
    }
}

#[test]
fn wrong_lengths_and_parameters_are_errors() {
    let workspace = Workspace::new();
    let (x, v) = ([0.0; 12], [0.0; 3]);
    let [mut mean, mut var] = [[0.0; 3]; 2];
    let no_rows = batch_stats(5, &x, &mut [0.0; 5], &mut [0.0; 5], &workspace);
    assert!(matches!(no_rows, Err(Error::Geometry { .. })));
    let empty = batch_stats(3, &[], &mut mean, &mut var, &workspace);
    assert!(matches!(empty, Err(Error::Geometry { .. })));
    let none = batch_stats(0, &[], &mut [], &mut [], &workspace);
    assert!(matches!(none, Err(Error::Geometry { .. })));
    let short = batch_stats(3, &x, &mut mean[..2], &mut var, &workspace);
    assert!(matches!(
        short,
        Err(Error::Length {
            operand: "mean",
            ..
        })
    ));
    let affine = Affine {
        scale: &v,
        shift: &v,
    };
    let short = normalize(
        3,
        &x,
        affine,
        Residual::Plain(&x[1..]),
        Clamp::Relu,
        &mut [0.0; 12],
    );
    assert!(matches!(
        short,
        Err(Error::Length {
            operand: "residual",
            ..
        })
    ));
    let statistics = Statistics {
        mean: &v,
        var: &v,
        eps: -1.0,
    };
    let negative = fold(statistics, None, None, &mut mean, &mut var);
    assert!(matches!(
        negative,
        Err(Error::Parameter {
            parameter: "eps",
            ..
        })
    ));
    let short = backward_frozen(3, &x, Mask::Relu(&x[1..]), &v, None, &mut [0.0; 12], None);
    assert!(matches!(short, Err(Error::Length { operand: "y", .. })));
    let mut masked = [0.0; 11];
    let short = backward_frozen(
        3,
        &x,
        Mask::None,
        &v,
        None,
        &mut [0.0; 12],
        Some(&mut masked),
    );
    assert!(matches!(
        short,
        Err(Error::Length {
            operand: "masked",
            ..
        })
    ));
}
