//! Dropout and drop path: rates, scale, and the same mask in both directions.

mod support;

use support::*;
use tallow_kernels::Error;
use tallow_kernels::dropout::{drop_path, drop_path_backward, dropout, dropout_backward};
use tallow_kernels::simd::{Level, with_level};

fn dropped(key: u64, p: f64, x: &[f32]) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len()];
    dropout(key, p, x, &mut y).unwrap();
    y
}

#[test]
fn elements_are_dropped_at_the_rate_and_the_rest_scaled_up() {
    at_every_level(|_| {
        for p in [0.0, 0.1, 0.5, 0.9, 1.0] {
            let y = dropped(3, p, &vec![2.0; 200_001]);
            let scale = (1.0 / (1.0 - p)) as f32;
            assert!(y.iter().all(|&y| y == 0.0 || y == 2.0 * scale));
            let rate = y.iter().filter(|&&y| y == 0.0).count() as f64 / y.len() as f64;
            assert!((rate - p).abs() < 6e-3, "rate {rate} for {p}");
        }
    });
}

#[test]
fn the_gradient_passes_where_the_element_did() {
    let x = data(1, 10_007, 0.5, 1.5);
    for p in [0.0, 0.3, 1.0] {
        let mut dx = vec![f32::NAN; x.len()];
        dropout_backward(9, p, &vec![1.0; x.len()], &mut dx).unwrap();
        for ((&x, y), dx) in x.iter().zip(dropped(9, p, &x)).zip(dx) {
            assert_eq!(y, x * dx);
        }
    }
}

#[test]
fn a_mask_follows_from_key_and_place() {
    let x = vec![1.0; 100_000];
    assert_eq!(dropped(5, 0.5, &x), dropped(5, 0.5, &x));
    let (a, b) = (dropped(5, 0.5, &x), dropped(6, 0.5, &x));
    let alike = a.iter().zip(&b).filter(|(a, b)| a == b).count();
    assert!((48_000..52_000).contains(&alike), "{alike} of 100000 alike");
    assert_eq!(dropped(5, 0.5, &x[..33_333]), a[..33_333]);
    same_bits_for_any_threads(|| dropped(5, 0.5, &x));
    let portable = with_level(Level::Portable, || dropped(5, 0.5, &x));
    at_every_level(|_| assert!(dropped(5, 0.5, &x) == portable));
}

#[test]
fn a_dropped_element_is_zero_whatever_it_was() {
    let y = dropped(1, 0.5, &[f32::INFINITY; 64]);
    assert!(y.contains(&0.0) && y.contains(&f32::INFINITY) && !y.iter().any(|y| y.is_nan()));
    assert_eq!(dropped(1, 1.0, &[f32::NAN; 5]), [0.0; 5]);
}

#[test]
fn drop_path_keeps_or_drops_whole_samples() {
    let (samples, rest) = (4_000, 5);
    let x = data(2, samples * rest, 0.5, 1.5);
    let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
    drop_path(8, 0.25, [samples, rest], &x, &mut y).unwrap();
    drop_path_backward(8, 0.25, [samples, rest], &vec![1.0; x.len()], &mut dx).unwrap();
    let mut lost = 0;
    for ((x, y), dx) in x.chunks(rest).zip(y.chunks(rest)).zip(dx.chunks(rest)) {
        let factor = dx[0];
        assert!(factor == 0.0 || factor == (1.0f64 / 0.75) as f32);
        assert!(dx.iter().all(|&dx| dx == factor));
        assert!(x.iter().zip(y).all(|(x, &y)| y == x * factor));
        lost += usize::from(factor == 0.0);
    }
    assert!(
        (900..1100).contains(&lost),
        "{lost} of 4000 dropped at 0.25"
    );
    drop_path(8, 1.0, [samples, rest], &x, &mut y).unwrap();
    assert!(y.iter().all(|&y| y == 0.0));
    drop_path(8, 0.0, [samples, rest], &x, &mut y).unwrap();
    assert_eq!(x, y);
}

#[test]
fn a_rate_that_is_no_probability_is_an_error() {
    for p in [-0.1, 1.5, f64::NAN] {
        let error = dropout(1, p, &[1.0], &mut [0.0]).unwrap_err();
        assert!(
            matches!(error, Error::Parameter { parameter: "p", .. }),
            "{p}"
        );
        assert!(drop_path(1, p, [1, 1], &[1.0], &mut [0.0]).is_err());
    }
    assert!(matches!(
        dropout(1, 0.5, &[1.0; 3], &mut [0.0; 2]),
        Err(Error::Length {
            expected: 3,
            found: 2,
            ..
        })
    ));
    assert!(drop_path(1, 0.5, [2, 2], &[1.0; 3], &mut [0.0; 4]).is_err());
}
