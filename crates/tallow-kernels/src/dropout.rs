//! Dropout (Srivastava et al. 2014) and drop path (stochastic depth, Huang et al. 2016).
//!
//! The mask is not stored: element `i` is dropped or kept by word `i` of the key's Philox stream,
//! and the backward pass draws it again. What is kept is scaled by `1 / (1 - p)`, so that nothing
//! is left to do in evaluation. A dropped element is 0 even where the input was infinite or NaN.

use crate::error::{Error, Result, check_len, checked_product};
use crate::parallel::{LEAF, for_each, grain, rows};
use crate::rng::{Stream, WORDS, words};
use crate::simd::dispatch;

/// Which words keep their element, and the factor for what is kept.
#[derive(Debug, Clone, Copy)]
struct Mask {
    key: u64,
    /// Words from this one on keep their element; `None` keeps nothing.
    threshold: Option<u32>,
    scale: f32,
}

impl Mask {
    fn new(kernel: &'static str, key: u64, p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            let allowed = "a probability, 0 to 1";
            return Err(Error::Parameter {
                kernel,
                parameter: "p",
                found: p,
                allowed,
            });
        }
        let threshold = (p < 1.0).then_some((p * 4_294_967_296.0) as u32);
        Ok(Self {
            key,
            threshold,
            scale: (1.0 / (1.0 - p)) as f32,
        })
    }
}

/// `y[i] = x[i] / (1 - p)` with probability `1 - p`, else 0; all 0 for `p` = 1.
///
/// # Errors
/// [`Error::Length`] unless `y` is as long as `x`; [`Error::Parameter`] unless `p` is in 0 to 1.
pub fn dropout(key: u64, p: f64, x: &[f32], y: &mut [f32]) -> Result<()> {
    apply("dropout", key, p, x, y)
}

/// Gradient of [`dropout`] with the same `key` and `p`: `dx[i] = dy[i] / (1 - p)` where `x[i]` was
/// kept, else 0.
///
/// # Errors
/// As [`dropout`].
pub fn dropout_backward(key: u64, p: f64, dy: &[f32], dx: &mut [f32]) -> Result<()> {
    apply("dropout_backward", key, p, dy, dx)
}

fn apply(kernel: &'static str, key: u64, p: f64, x: &[f32], y: &mut [f32]) -> Result<()> {
    let mask = Mask::new(kernel, key, p)?;
    check_len(kernel, "output", y, x.len())?;
    match mask.threshold {
        None => y.fill(0.0),
        // Leaves begin at multiples of LEAF, so at a block of words.
        Some(threshold) => for_each(x.len(), LEAF, (x, y), |first, (x, y)| {
            dropout_leaf(
                mask.key,
                threshold,
                mask.scale,
                (first / WORDS) as u64,
                x,
                y,
            );
        }),
    }
    Ok(())
}

/// Elements whose factors are worked out before they are used: in one loop the words of the
/// generator wouldn't be computed side by side.
const BLOCK: usize = 64;

dispatch! {
    fn dropout_leaf<I>(
        key: u64, threshold: u32, scale: f32, first_block: u64, x: &[f32], y: &mut [f32]
    ) {
        let mut factors = [[0.0; WORDS]; BLOCK / WORDS];
        for (at, (x, y)) in x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)).enumerate() {
            let first = first_block + (at * BLOCK / WORDS) as u64;
            for (i, factors) in factors.iter_mut().enumerate() {
                let words = words(key, Stream::Mask, first + i as u64);
                *factors = words.map(|word| if word >= threshold { scale } else { 0.0 });
            }
            for ((y, &x), &factor) in y.iter_mut().zip(x).zip(factors.as_flattened()) {
                *y = if factor == 0.0 { 0.0 } else { x * factor };
            }
        }
    }
}

/// Drops whole samples: `y[n] = x[n] / (1 - p)` with probability `1 - p`, else 0, for `x` of
/// `[N, rest]`.
///
/// # Errors
/// [`Error::Length`] for a slice of another length; [`Error::Parameter`] unless `p` is in 0 to 1.
pub fn drop_path(
    key: u64,
    p: f64,
    [samples, rest]: [usize; 2],
    x: &[f32],
    y: &mut [f32],
) -> Result<()> {
    apply_path("drop_path", key, p, [samples, rest], x, y)
}

/// Gradient of [`drop_path`] with the same `key` and `p`.
///
/// # Errors
/// As [`drop_path`].
pub fn drop_path_backward(
    key: u64,
    p: f64,
    [samples, rest]: [usize; 2],
    dy: &[f32],
    dx: &mut [f32],
) -> Result<()> {
    apply_path("drop_path_backward", key, p, [samples, rest], dy, dx)
}

fn apply_path(
    kernel: &'static str,
    key: u64,
    p: f64,
    [samples, rest]: [usize; 2],
    x: &[f32],
    y: &mut [f32],
) -> Result<()> {
    let mask = Mask::new(kernel, key, p)?;
    let len = checked_product(kernel, &[samples, rest])?;
    check_len(kernel, "input", x, len)?;
    check_len(kernel, "output", y, len)?;
    if len == 0 {
        return Ok(());
    }
    let kept = |sample: usize| {
        let words = words(mask.key, Stream::Mask, (sample / WORDS) as u64);
        mask.threshold
            .is_some_and(|threshold| words[sample % WORDS] >= threshold)
    };
    for_each(
        samples,
        grain(rest),
        (rows(x, rest), rows(y, rest)),
        |first, (x, y)| {
            let samples = x.data.chunks_exact(rest).zip(y.data.chunks_exact_mut(rest));
            for (sample, (x, y)) in samples.enumerate() {
                if kept(first + sample) {
                    for (y, &x) in y.iter_mut().zip(x) {
                        *y = x * mask.scale;
                    }
                } else {
                    y.fill(0.0);
                }
            }
        },
    );
    Ok(())
}
