//! Activations against the formulas in `f64`, and PyTorch's values at the edges.

mod support;

use support::*;
use tallow_kernels::activation::{Activation, backward, forward};
use tallow_kernels::{Error, elementwise};

const ALL: [Activation; 8] = [
    Activation::Relu,
    Activation::Relu6,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::Hardswish,
];

/// erf by its Taylor series up to 3, by Lentz's continued fraction of erfc beyond.
fn erf(x: f64) -> f64 {
    if x < 0.0 {
        return -erf(-x);
    }
    if x < 3.0 {
        let (mut sum, mut term) = (x, x);
        for n in 1..120 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..60).rev().fold(x, |f, n| x + f64::from(n) / 2.0 / f);
    1.0 - (-x * x).exp() / fraction / std::f64::consts::PI.sqrt()
}

fn reference(act: Activation, x: f64) -> f64 {
    match act {
        Activation::Relu => x.max(0.0),
        Activation::Relu6 => x.clamp(0.0, 6.0),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Tanh => x.tanh(),
        Activation::Hardswish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
    }
}

fn value(act: Activation, x: f32) -> f32 {
    let mut y = [0.0];
    forward(act, &[x], &mut y).unwrap();
    y[0]
}

fn slope(act: Activation, x: f32) -> f32 {
    let mut dx = [0.0];
    backward(act, &[x], &[1.0], &mut dx).unwrap();
    dx[0]
}

#[test]
fn values_follow_the_formula_in_double_precision() {
    let mut x = data(1, 40_000, -12.0, 12.0);
    x.extend(data(2, 4_001, -1e-3, 1e-3));
    at_every_level(|_| {
        for act in ALL {
            let mut y = vec![f32::NAN; x.len()];
            forward(act, &x, &mut y).unwrap();
            let expected: Vec<f64> = x.iter().map(|&x| reference(act, f64::from(x))).collect();
            assert_close(&y, &expected, 2.5e-7);
        }
    });
}

#[test]
fn gradients_follow_central_differences() {
    let x: Vec<f32> = data(3, 999, -8.0, 8.0)
        .into_iter()
        // Away from the kinks, where a central difference has no meaning.
        .filter(|x| {
            [0.0f32, 6.0, -3.0, 3.0]
                .iter()
                .all(|kink| (x - kink).abs() > 1e-3)
        })
        .collect();
    let dy = data(4, x.len(), -2.0, 2.0);
    at_every_level(|_| {
        for act in ALL {
            let mut dx = vec![f32::NAN; x.len()];
            backward(act, &x, &dy, &mut dx).unwrap();
            let h = 1e-5;
            let expected: Vec<f64> = x
                .iter()
                .zip(&dy)
                .map(|(&x, &dy)| {
                    let x = f64::from(x);
                    let slope = (reference(act, x + h) - reference(act, x - h)) / (2.0 * h);
                    f64::from(dy) * slope
                })
                .collect();
            assert_close(&dx, &expected, 1e-6);
        }
    });
}

#[test]
fn kinks_have_pytorchs_gradients() {
    for (act, x, expected) in [
        (Activation::Relu, 0.0, 0.0),
        (Activation::Relu, -0.0, 0.0),
        (Activation::Relu6, 0.0, 0.0),
        (Activation::Relu6, 6.0, 0.0),
        (Activation::Relu6, 3.0, 1.0),
        (Activation::Hardswish, -3.0, 0.0),
        (Activation::Hardswish, 0.0, 0.5),
        (Activation::Hardswish, 3.0, 1.0),
    ] {
        assert_eq!(slope(act, x), expected, "{act:?} at {x}");
    }
}

#[test]
fn a_zero_slope_stops_an_infinite_gradient() {
    for act in [Activation::Relu, Activation::Relu6, Activation::Hardswish] {
        let mut dx = [f32::NAN];
        backward(act, &[-5.0], &[f32::INFINITY], &mut dx).unwrap();
        assert_eq!(dx, [0.0], "{act:?}");
    }
}

#[test]
fn far_from_zero_values_and_slopes_are_the_limits() {
    at_every_level(|_| {
        for x in [30.0, 100.0, 1e30] {
            for act in [
                Activation::Relu,
                Activation::Gelu,
                Activation::GeluTanh,
                Activation::Silu,
            ] {
                assert_eq!((value(act, x), slope(act, x)), (x, 1.0), "{act:?} at {x}");
            }
            for (act, high) in [(Activation::Sigmoid, 1.0), (Activation::Tanh, 1.0)] {
                assert_eq!(
                    (value(act, x), slope(act, x)),
                    (high, 0.0),
                    "{act:?} at {x}"
                );
            }
        }
        for x in [-100.0, -1e30] {
            for act in ALL {
                let low = if act == Activation::Tanh { -1.0 } else { 0.0 };
                assert_eq!((value(act, x), slope(act, x)), (low, 0.0), "{act:?} at {x}");
            }
        }
    });
}

#[test]
fn nan_comes_out_where_it_went_in() {
    at_every_level(|_| {
        for act in ALL {
            let mut x = vec![1.0; 37];
            x[20] = f32::NAN;
            let mut y = vec![0.0; 37];
            forward(act, &x, &mut y).unwrap();
            for (i, y) in y.iter().enumerate() {
                assert_eq!(y.is_nan(), i == 20, "{act:?}");
            }
        }
    });
}

#[test]
fn exponential_and_error_function_are_within_two_units_in_the_last_place() {
    at_every_level(|_| {
        let mut x = data(5, 200_000, -87.0, 88.7);
        x.extend(data(6, 20_000, -0.5, 0.5));
        let mut y = vec![0.0; x.len()];
        elementwise::exp(&x, &mut y).unwrap();
        for (&x, &y) in x.iter().zip(&y) {
            let exact = f64::from(x).exp();
            assert!(
                (f64::from(y) / exact - 1.0).abs() < 1.2e-7,
                "exp({x}) = {y}"
            );
        }
        let mut x = data(7, 200_000, -5.0, 5.0);
        x.extend(data(8, 20_000, -1e-2, 1e-2));
        elementwise::erf(&x, {
            y.resize(x.len(), 0.0);
            &mut y
        })
        .unwrap();
        for (&x, &y) in x.iter().zip(&y) {
            let exact = erf(f64::from(x));
            assert!(
                (f64::from(y) / exact - 1.0).abs() < 1.5e-7,
                "erf({x}) = {y}"
            );
        }
    });
}

#[test]
fn exponential_ends_in_zero_and_infinity() {
    at_every_level(|_| {
        let x = [
            f32::NEG_INFINITY,
            -200.0,
            -104.0,
            -100.0,
            88.7,
            89.0,
            f32::INFINITY,
            f32::NAN,
        ];
        let mut y = [1.0; 8];
        elementwise::exp(&x, &mut y).unwrap();
        assert_eq!(y[..3], [0.0; 3]);
        assert!(
            y[3] > 0.0 && y[3] < f32::MIN_POSITIVE,
            "a denormal: {}",
            y[3]
        );
        assert!(y[4].is_finite());
        assert_eq!(y[5..7], [f32::INFINITY; 2]);
        assert!(y[7].is_nan());
    });
}

#[test]
fn bits_depend_neither_on_threads_nor_on_the_width_of_a_register() {
    let x = data(9, 150_001, -9.0, 9.0);
    let dy = data(10, x.len(), -1.0, 1.0);
    for act in ALL {
        let compute = || {
            let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            forward(act, &x, &mut y).unwrap();
            backward(act, &x, &dy, &mut dx).unwrap();
            [y, dx].concat()
        };
        same_bits_for_any_threads(compute);
        same_bits_for_fused_levels(compute);
    }
}

#[test]
fn a_slice_of_another_length_is_an_error_that_names_it() {
    let found = forward(Activation::Relu, &[0.0; 3], &mut [0.0; 4]).unwrap_err();
    assert_eq!(
        found,
        Error::Length {
            kernel: "activation forward",
            operand: "y",
            expected: 3,
            found: 4
        }
    );
    assert!(backward(Activation::Relu, &[0.0; 3], &[0.0; 2], &mut [0.0; 3]).is_err());
    assert!(backward(Activation::Relu, &[0.0; 3], &[0.0; 3], &mut [0.0; 2]).is_err());
}
