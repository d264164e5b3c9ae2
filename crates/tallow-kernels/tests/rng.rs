//! The counter-based generator: known answers, independence of how a fill is cut, statistics.

mod support;

use proptest::prelude::*;
use support::*;
use tallow_kernels::rng::{fill_normal, fill_uniform, philox4x32};
use tallow_kernels::simd::{Level, with_level};

#[test]
fn words_are_those_of_the_papers_known_answers() {
    for (counter, key, words) in [
        (
            [0; 4],
            [0; 2],
            [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8],
        ),
        (
            [u32::MAX; 4],
            [u32::MAX; 2],
            [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
        ),
        (
            [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
            [0xa4093822, 0x299f31d0],
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
        ),
    ] {
        assert_eq!(philox4x32(counter, key), words);
    }
}

fn uniform(key: u64, offset: u64, len: usize) -> Vec<f32> {
    let mut y = vec![f32::NAN; len];
    fill_uniform(key, offset, -1.0, 3.0, &mut y);
    y
}

fn normal(key: u64, offset: u64, len: usize) -> Vec<f32> {
    let mut y = vec![f32::NAN; len];
    fill_normal(key, offset, 0.5, 2.0, &mut y);
    y
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_element_depends_on_key_and_number_alone(
        key: u64, start in 0u64..1 << 40, len in 1usize..200, cut in 0usize..200
    ) {
        let cut = cut.min(len);
        for fill in [uniform, normal] {
            let whole = fill(key, start, len);
            let parts = [fill(key, start, cut), fill(key, start + cut as u64, len - cut)].concat();
            prop_assert_eq!(bits(&whole), bits(&parts));
        }
    }
}

#[test]
fn numbers_are_the_same_at_every_level_and_for_any_number_of_threads() {
    let compute = || [uniform(7, 3, 100_003), normal(7, 3, 100_003)].concat();
    same_bits_for_any_threads(compute);
    let portable = with_level(Level::Portable, || bits(&compute()));
    at_every_level(|level| assert!(bits(&compute()) == portable, "{level} differs"));
}

#[test]
fn keys_offsets_and_distributions_give_unrelated_numbers() {
    let a = uniform(1, 0, 4096);
    for b in [
        uniform(2, 0, 4096),
        uniform(1 << 32, 0, 4096),
        uniform(1, 4096, 4096),
    ] {
        assert!(correlation(&a, &b).abs() < 0.05);
    }
    assert!(correlation(&a, &normal(1, 0, 4096)).abs() < 0.05);
}

fn correlation(a: &[f32], b: &[f32]) -> f64 {
    let (a, b) = (standardised(a), standardised(b));
    a.iter().zip(&b).map(|(a, b)| a * b).sum::<f64>() / a.len() as f64
}

fn standardised(x: &[f32]) -> Vec<f64> {
    let (mean, var) = moments(x);
    x.iter()
        .map(|&x| (f64::from(x) - mean) / var.sqrt())
        .collect()
}

fn moments(x: &[f32]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = widen(x).iter().sum::<f64>() / n;
    (
        mean,
        widen(x).iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n,
    )
}

#[test]
fn uniform_numbers_fill_their_range_evenly() {
    let x = uniform(42, 0, 1 << 20);
    assert!(x.iter().all(|x| (-1.0..3.0).contains(x)));
    let (mean, var) = moments(&x);
    // Standard error of the mean is 1.13e-3 here.
    assert!((mean - 1.0).abs() < 5e-3, "mean {mean}");
    assert!((var - 16.0 / 12.0).abs() < 1e-2, "variance {var}");
    let mut counts = [0u32; 64];
    x.iter()
        .for_each(|x| counts[((x + 1.0) * 16.0) as usize] += 1);
    let expected = x.len() as f64 / 64.0;
    let chi_squared: f64 = counts
        .iter()
        .map(|&n| (f64::from(n) - expected).powi(2) / expected)
        .sum();
    // 63 degrees of freedom: beyond 115 once in 20,000.
    assert!(chi_squared < 115.0, "chi squared {chi_squared}");
}

#[test]
fn a_range_without_width_gives_its_lower_end() {
    let mut y = [f32::NAN; 9];
    fill_uniform(1, 0, 2.0, 2.0, &mut y);
    assert_eq!(y, [2.0; 9]);
}

#[test]
fn normal_numbers_have_the_moments_and_tails_of_the_normal_distribution() {
    let x = normal(42, 0, 1 << 20);
    let (mean, var) = moments(&x);
    assert!((mean - 0.5).abs() < 8e-3, "mean {mean}");
    assert!((var / 4.0 - 1.0).abs() < 8e-3, "variance {var}");
    let z = standardised(&x);
    let n = z.len() as f64;
    let moment = |k: i32| z.iter().map(|z| z.powi(k)).sum::<f64>() / n;
    assert!(moment(3).abs() < 0.015, "skewness {}", moment(3));
    assert!((moment(4) - 3.0).abs() < 0.03, "kurtosis {}", moment(4));
    for (limit, share) in [(1.0, 0.317311), (2.0, 0.045500), (3.0, 0.002700)] {
        let beyond = z.iter().filter(|z| z.abs() > limit).count() as f64 / n;
        assert!(
            (beyond / share - 1.0).abs() < 0.06,
            "{beyond} beyond {limit}, not {share}"
        );
    }
    // Neighbours come of one pair of words.
    let (even, odd): (Vec<f32>, Vec<f32>) = x.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
    assert!(correlation(&even, &odd).abs() < 6e-3);
}
