//! What the kernel tests share: reproducible data, comparison, every level, several pools.
#![allow(dead_code, reason = "each test file uses a part")]

use tallow_kernels::simd::{Level, with_level};

/// `len` numbers spread evenly over `low..high`, the same for the same `seed`.
pub(crate) fn data(seed: u64, len: usize, low: f32, high: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def0;
    (0..len)
        .map(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let unit = ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 24) as f32;
            low + (high - low) * unit
        })
        .collect()
}

/// Runs `check` at every level that this machine has.
pub(crate) fn at_every_level(check: impl Fn(Level)) {
    for level in Level::available() {
        with_level(level, || check(level));
    }
}

/// Runs `compute` in pools of 1, 2 and 3 threads and at every level; all results of one level
/// must have the same bits.
pub(crate) fn same_bits_for_any_threads(compute: impl Fn() -> Vec<f32> + Sync) {
    at_every_level(|level| {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| bits(&compute()))
        };
        let one = run(1);
        assert!(!one.is_empty());
        assert!(one == run(2), "2 threads differ from 1 at {level}");
        assert!(one == run(3), "3 threads differ from 1 at {level}");
    });
}

/// Results of AVX2 and AVX-512, where the machine has both, must have the same bits.
pub(crate) fn same_bits_for_fused_levels(compute: impl Fn() -> Vec<f32>) {
    let results: Vec<_> = Level::available()
        .filter(|&level| level != Level::Portable)
        .map(|level| with_level(level, || bits(&compute())))
        .collect();
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Fails unless every element of `found` is within `tolerance * (1 + |expected|)`.
#[track_caller]
pub(crate) fn assert_close(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        assert!(
            error <= tolerance * (1.0 + expected.abs()),
            "element {i}: found {found}, expected {expected}"
        );
    }
}

/// Gradient of `loss` at `x` by central differences in `f64`.
pub(crate) fn numeric_gradient(x: &[f32], loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let mut x = widen(x);
    (0..x.len())
        .map(|i| {
            let at = x[i];
            x[i] = at + STEP;
            let above = loss(&x);
            x[i] = at - STEP;
            let below = loss(&x);
            x[i] = at;
            (above - below) / (2.0 * STEP)
        })
        .collect()
}

/// `sum(a * b)`: the loss whose gradient by `a` is `b`.
pub(crate) fn weighted(a: &[f64], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, &b)| a * f64::from(b)).sum()
}

pub(crate) fn widen(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}
