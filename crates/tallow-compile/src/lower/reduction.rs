//! Sums and means, as passes over one run of neighbouring dimensions each.

use tallow_kernels::reduce::sum_axis;

use super::{Lowered, Site};

pub(super) fn sum(site: &Site<'_>, dims: &[usize]) -> Lowered {
    reduce(site, dims, 1.0)
}

pub(super) fn mean(site: &Site<'_>, dims: &[usize]) -> Lowered {
    let count: usize = dims.iter().map(|&dim| site.shape(0)[dim]).product();
    reduce(site, dims, 1.0 / count.max(1) as f32)
}

fn reduce(site: &Site<'_>, dims: &[usize], factor: f32) -> Lowered {
    let passes = passes(site.shape(0), dims);
    Lowered::new(move |io| {
        let Some((last, before)) = passes.split_last() else {
            io.out.copy_from_slice(io.floats(0));
            return Ok(());
        };
        let mut held = None;
        for &[outer, len, inner] in before {
            let mut sums = io.workspace.take(outer * inner);
            let values = held.as_deref().unwrap_or(io.floats(0));
            sum_axis([outer, len, inner], values, 1.0, &mut sums)?;
            held = Some(sums);
        }
        sum_axis(
            *last,
            held.as_deref().unwrap_or(io.floats(0)),
            factor,
            io.out,
        )
    })
}

/// `[outer, len, inner]` of each run of reduced dimensions, last run first; each sees what the one before left.
fn passes(shape: &[usize], dims: &[usize]) -> Vec<[usize; 3]> {
    let mut passes = Vec::new();
    let mut inner = 1;
    let mut end = shape.len();
    while end > 0 {
        let reduced = dims.contains(&(end - 1));
        let mut start = end;
        while start > 0 && dims.contains(&(start - 1)) == reduced {
            start -= 1;
        }
        let len: usize = shape[start..end].iter().product();
        if reduced {
            passes.push([shape[..start].iter().product(), len, inner]);
        } else {
            inner *= len;
        }
        end = start;
    }
    passes
}
