//! What surrounds an update: norms of gradients, their sums over batches, averages of parameters.

use crate::error::{Result, check_len};
use crate::parallel::{LEAF, for_each, reduce};
use crate::simd::dispatch;

/// Sums that don't wait for each other.
const LANES: usize = 8;

/// The sum of squares of `values`, in `f64` and in an order that follows from the length alone.
pub fn square_sum(values: &[f32]) -> f64 {
    reduce(
        values.len(),
        LEAF,
        values,
        |_, leaf| squares(leaf),
        |a, b| a + b,
    )
    .unwrap_or(0.0)
}

/// `values *= factor`.
pub fn scale(factor: f32, values: &mut [f32]) {
    for_each(values.len(), LEAF, values, |_, values| {
        scale_leaf(factor, values)
    });
}

/// `values` no farther from zero than `limit`; NaN stays.
pub fn clamp(limit: f32, values: &mut [f32]) {
    for_each(values.len(), LEAF, values, |_, values| {
        clamp_leaf(limit, values)
    });
}

/// `sum += factor * values`.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) unless both are as long.
pub fn add_scaled(factor: f32, values: &[f32], sum: &mut [f32]) -> Result<()> {
    check_len("add_scaled", "values", values, sum.len())?;
    for_each(sum.len(), LEAF, (sum, values), |_, (sum, values)| {
        add_scaled_leaf(factor, values, sum);
    });
    Ok(())
}

/// `average += share * (values - average)`.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) unless both are as long.
pub fn approach(share: f32, values: &[f32], average: &mut [f32]) -> Result<()> {
    check_len("approach", "values", values, average.len())?;
    for_each(
        average.len(),
        LEAF,
        (average, values),
        |_, (average, values)| {
            approach_leaf(share, values, average);
        },
    );
    Ok(())
}

dispatch! {
    fn squares<I>(values: &[f32]) -> f64 {
        let mut lanes = [0f64; LANES];
        for (index, &value) in values.iter().enumerate() {
            lanes[index % LANES] += f64::from(value) * f64::from(value);
        }
        lanes.iter().sum()
    }
}

dispatch! {
    fn scale_leaf<I>(factor: f32, values: &mut [f32]) {
        values.iter_mut().for_each(|value| *value *= factor);
    }
}

dispatch! {
    fn clamp_leaf<I>(limit: f32, values: &mut [f32]) {
        values.iter_mut().for_each(|value| *value = value.clamp(-limit, limit));
    }
}

dispatch! {
    fn add_scaled_leaf<I>(factor: f32, values: &[f32], sum: &mut [f32]) {
        for (sum, &value) in sum.iter_mut().zip(values) {
            *sum = I::fma(factor, value, *sum);
        }
    }
}

dispatch! {
    fn approach_leaf<I>(share: f32, values: &[f32], average: &mut [f32]) {
        for (average, &value) in average.iter_mut().zip(values) {
            *average = I::fma(share, value - *average, *average);
        }
    }
}
