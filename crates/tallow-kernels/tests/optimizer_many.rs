//! Updates of many parameters, LAMB, Muon, and the vectors around updates.

mod support;

use support::*;
use tallow_kernels::Error;
use tallow_kernels::optimizer::{
    AdamW, Job, Lamb, Muon, NewtonSchulz, Sgd, SgdStep, adamw, adamw_many, add_scaled, approach,
    clamp, lamb_many, muon, orthogonalize, scale, sgd, sgd_many, square_sum,
};

/// Lengths below, at and above a leaf.
const LENGTHS: [usize; 5] = [1, 7, 32_768, 32_769, 100_003];

fn wave(len: usize, salt: usize) -> Vec<f32> {
    let value = |i: usize| ((i * i * 31 + i * 17 + salt * 101) % 1009) as f32 / 504.0 - 1.0;
    (0..len).map(value).collect()
}

/// Parameter, gradient and two states of each length.
fn parameters() -> Vec<[Vec<f32>; 4]> {
    LENGTHS
        .map(|len| [wave(len, 1), wave(len, 2), vec![0.0; len], vec![0.0; len]])
        .into()
}

fn jobs<C>(parameters: &mut [[Vec<f32>; 4]], config: impl Fn(usize) -> C) -> Vec<Job<'_, C>> {
    let jobs = parameters.iter_mut().enumerate();
    let jobs = jobs.map(|(index, [param, grad, first, second])| Job {
        config: config(index),
        param,
        grad,
        state: [first, second],
    });
    jobs.collect()
}

#[test]
fn many_updates_give_the_bits_of_single_ones() {
    at_every_level(|_| {
        let config = |index: usize, step| AdamW {
            lr: 0.1 / (index + 1) as f64,
            step,
            ..AdamW::default()
        };
        let (mut together, mut single) = (parameters(), parameters());
        for step in 1..3 {
            adamw_many(&mut jobs(&mut together, |index| config(index, step))).unwrap();
            for (index, [p, g, m, v]) in single.iter_mut().enumerate() {
                adamw(&config(index, step), p, g, m, v).unwrap();
            }
        }
        assert!(together == single);

        for momentum in [0.0, 0.9] {
            let config = Sgd {
                momentum,
                weight_decay: 0.1,
                ..Sgd::default()
            };
            let (mut together, mut single) = (parameters(), parameters());
            for first in [true, false] {
                sgd_many(&mut jobs(&mut together, |_| SgdStep { config, first })).unwrap();
                for [p, g, buffer, _] in &mut single {
                    sgd(&config, p, g, buffer, first).unwrap();
                }
            }
            assert!(together == single);
        }
    });
}

fn norm(values: &[f32]) -> f64 {
    let squares = values.iter().map(|&v| f64::from(v) * f64::from(v));
    squares.sum::<f64>().sqrt()
}

#[test]
fn lamb_moves_each_parameter_by_its_own_norm() {
    let config = |_| Lamb {
        lr: 0.25,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-6,
        weight_decay: 0.01,
        adapt: true,
        step: 1,
    };
    at_every_level(|_| {
        let before = parameters();
        let mut after = parameters();
        lamb_many(&mut jobs(&mut after, config)).unwrap();
        for (before, after) in before.iter().zip(&after) {
            let moved: Vec<f32> = before[0]
                .iter()
                .zip(&after[0])
                .map(|(a, b)| a - b)
                .collect();
            let (moved, length) = (norm(&moved), norm(&before[0]));
            assert!(
                (moved - 0.25 * length).abs() < 1e-5 * length,
                "{moved} of {length}"
            );
        }
    });
    let mut wrong = parameters();
    wrong[2][1].pop();
    let before = wrong.clone();
    let error = lamb_many(&mut jobs(&mut wrong, config)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Length {
                operand: "grad",
                ..
            }
        ),
        "{error}"
    );
    assert!(wrong == before, "nothing was changed");
}

#[test]
fn newton_schulz_brings_singular_values_near_one() {
    for [rows, columns] in [[4, 4], [3, 50], [50, 3], [1, 9]] {
        let mut matrix = wave(rows * columns, 5);
        let slow = NewtonSchulz {
            steps: 20,
            coefficients: [2.0, -1.5, 0.5],
            ..NewtonSchulz::default()
        };
        orthogonalize(&slow, [rows, columns], &mut matrix).unwrap();
        // That polynomial converges to 1: rows (or columns) are orthonormal.
        let (n, k) = (rows.min(columns), rows.max(columns));
        let at = |i: usize, j: usize| {
            let index = if rows > columns {
                j * columns + i
            } else {
                i * columns + j
            };
            f64::from(matrix[index])
        };
        for a in 0..n {
            for b in 0..n {
                let dot: f64 = (0..k).map(|j| at(a, j) * at(b, j)).sum();
                let expected = f64::from(u8::from(a == b));
                assert!(
                    (dot - expected).abs() < 0.05,
                    "{rows}x{columns}, {a}, {b}: {dot}"
                );
            }
        }
    }
    orthogonalize(&NewtonSchulz::default(), [0, 3], &mut []).unwrap();
    let mut zeros = vec![0.0; 6];
    orthogonalize(&NewtonSchulz::default(), [2, 3], &mut zeros).unwrap();
    assert_eq!(zeros, [0.0; 6]);
}

#[test]
fn muon_checks_its_settings() {
    let config = Muon {
        lr: 0.1,
        step_lr: 0.1,
        momentum: 1.0,
        nesterov: true,
        weight_decay: 0.0,
        newton_schulz: NewtonSchulz::default(),
    };
    let (mut p, g, mut b) = ([1.0; 4], [1.0; 4], [0.0; 4]);
    let error = muon(&config, [2, 2], &mut p, &g, &mut b).unwrap_err();
    assert!(error.to_string().contains("momentum"), "{error}");
    let good = Muon {
        momentum: 0.9,
        ..config
    };
    assert!(muon(&good, [2, 3], &mut p, &g, &mut b).is_err());
    assert_eq!(p, [1.0; 4]);
}

#[test]
fn vectors_are_scaled_summed_and_averaged() {
    at_every_level(|_| {
        for len in LENGTHS {
            let (a, b) = (wave(len, 3), wave(len, 4));
            let expected: f64 = a.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
            assert!((square_sum(&a) - expected).abs() <= 1e-12 * expected);
            let check = |f: &dyn Fn(&mut [f32]), of: &dyn Fn(f32, f32) -> f32| {
                let mut values = a.clone();
                f(&mut values);
                for ((value, &a), &b) in values.iter().zip(&a).zip(&b) {
                    assert!((value - of(a, b)).abs() < 1e-6);
                }
            };
            check(&|v| scale(0.5, v), &|a, _| 0.5 * a);
            check(&|v| clamp(0.25, v), &|a, _| a.clamp(-0.25, 0.25));
            check(&|v| add_scaled(2.0, &b, v).unwrap(), &|a, b| a + 2.0 * b);
            check(&|v| approach(0.25, &b, v).unwrap(), &|a, b| {
                a + 0.25 * (b - a)
            });
        }
    });
    assert_eq!(square_sum(&[]), 0.0);
    assert!(add_scaled(1.0, &[1.0], &mut []).is_err());
    assert!(approach(1.0, &[1.0], &mut []).is_err());
}
