//! Sums over any dimensions, as passes over one run of neighbouring dimensions each.

use candle_core::{Result, Tensor};
use tallow_kernels::parallel;
use tallow_kernels::reduce::sum_axis;

use super::{Kernel, Outcome};

/// `factor` times the sum of `xs` over `dims`; a factor of 1 over the count makes it a mean.
pub(crate) fn sum(xs: &Tensor, dims: &[usize], factor: f64, out: &[usize]) -> Result<Tensor> {
    let passes = passes(xs.dims(), |dim| dims.contains(&dim));
    let rule = passes.clone();
    let factor = factor as f32;
    Kernel::new(
        "reduction",
        out,
        move |[x], y| {
            y.copy_from_slice(&reduce(x, &passes, factor)?);
            Ok(())
        },
        move |b| {
            Ok([b.gradient(0, |dx| {
                repeat(b.grad, &rule, factor, dx);
                Ok(())
            })?])
        },
    )
    .apply([xs])
}

/// Sums `values` of shape `from` over the dimensions in which `to`, aligned at the last one, is 1 or missing.
pub(super) fn sum_to(values: &[f32], from: &[usize], to: &[usize]) -> Outcome<Vec<f32>> {
    let missing = from.len() - to.len();
    let repeated = |dim: usize| dim < missing || (to[dim - missing] == 1 && from[dim] != 1);
    reduce(values, &passes(from, repeated), 1.)
}

/// `[outer, len, inner]` of each run of reduced dimensions, last run first; each sees what the one before left.
fn passes(shape: &[usize], reduced: impl Fn(usize) -> bool) -> Vec<[usize; 3]> {
    let run_before = |end: usize, kind: bool| {
        let dims = (0..end).rev();
        end - dims.take_while(|&dim| reduced(dim) == kind).count()
    };
    let count = |dims: std::ops::Range<usize>| shape[dims].iter().product::<usize>();
    let mut passes = Vec::new();
    let mut inner = 1;
    let mut end = shape.len();
    while end > 0 {
        let kept = run_before(end, false);
        inner *= count(kept..end);
        let start = run_before(kept, true);
        if start < kept {
            passes.push([count(0..start), count(start..kept), inner]);
        }
        end = start;
    }
    passes
}

fn reduce(values: &[f32], passes: &[[usize; 3]], factor: f32) -> Outcome<Vec<f32>> {
    let mut values = std::borrow::Cow::Borrowed(values);
    for (i, &[outer, len, inner]) in passes.iter().enumerate() {
        let factor = if i + 1 == passes.len() { factor } else { 1. };
        let mut sums = vec![0f32; outer * inner];
        sum_axis([outer, len, inner], &values, factor, &mut sums)?;
        values = sums.into();
    }
    Ok(values.into_owned())
}

/// The gradient of [`reduce`]: each element of `grad`, times `factor`, wherever it was summed.
fn repeat(grad: &[f32], passes: &[[usize; 3]], factor: f32, dx: &mut [f32]) {
    let mut values: Vec<f32> = grad.iter().map(|g| g * factor).collect();
    let Some((widest, before)) = passes.split_first() else {
        dx.copy_from_slice(&values);
        return;
    };
    for pass in before.iter().rev() {
        let mut spread = vec![0f32; pass.iter().product()];
        repeat_axis(&values, *pass, &mut spread);
        values = spread;
    }
    repeat_axis(&values, *widest, dx);
}

/// `y[o, l, i] = x[o, i]`.
fn repeat_axis(x: &[f32], [outer, len, inner]: [usize; 3], y: &mut [f32]) {
    let width = len * inner;
    let rows = (parallel::rows(x, inner), parallel::rows(y, width));
    parallel::for_each(outer, parallel::grain(width), rows, |_, (x, y)| {
        for (x, y) in x
            .data
            .chunks_exact(inner)
            .zip(y.data.chunks_exact_mut(width))
        {
            match x {
                [value] => y.fill(*value),
                row => y
                    .chunks_exact_mut(inner)
                    .for_each(|y| y.copy_from_slice(row)),
            }
        }
    });
}
