//! Arithmetic of two tensors of different shapes, stretched as PyTorch and numpy do.
//!
//! Shapes are aligned at their last axes; an axis of size 1, or one that is missing in front, is
//! repeated. [`elementwise`](crate::elementwise) is the way for equal shapes, and
//! [`reduce`](crate::reduce) for the gradients, which sum over the repeated axes.

use crate::elementwise::{Difference, Pairing, Product, Quotient, Sum};
use crate::error::{Error, Result, check_len, checked_product};
use crate::parallel::{for_each, grain, rows};
use crate::simd::dispatch;

/// A binary operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a b`.
    Mul,
    /// `a / b`.
    Div,
}

/// Most axes that [`binary`] takes.
pub const MAX_AXES: usize = 8;

/// The shape that `a` and `b` are both stretched to.
///
/// # Errors
/// [`Error::Geometry`] where two aligned sizes differ and neither is 1, or there are more than
/// [`MAX_AXES`] axes.
pub fn broadcast_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let axes = a.len().max(b.len());
    let problem = |what: &str| Error::Geometry {
        kernel: "broadcast",
        problem: format!("can't stretch {a:?} and {b:?} to one shape: {what}"),
    };
    if axes > MAX_AXES {
        return Err(problem("too many axes, fold neighbouring ones first"));
    }
    (0..axes)
        .map(
            |axis| match (size_at(a, axes, axis), size_at(b, axes, axis)) {
                (a, b) if a == b => Ok(a),
                (1, size) | (size, 1) => Ok(size),
                _ => Err(problem(
                    "aligned at the last axis, sizes must be equal or 1",
                )),
            },
        )
        .collect()
}

/// Size of a shape along `axis` of `axes`, after 1s were put in front.
fn size_at(shape: &[usize], axes: usize, axis: usize) -> usize {
    (axis + shape.len())
        .checked_sub(axes)
        .map_or(1, |axis| shape[axis])
}

/// `y = a op b`, where `a` has `a_shape`, `b` has `b_shape`, and `y` the shape that
/// [`broadcast_shape`] gives.
///
/// # Errors
/// As [`broadcast_shape`], and [`Error::Length`] for a slice that doesn't fill its shape.
pub fn binary(
    op: Binary,
    a: &[f32],
    a_shape: &[usize],
    b: &[f32],
    b_shape: &[usize],
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "broadcast binary";
    let y_shape = broadcast_shape(a_shape, b_shape)?;
    check_len(KERNEL, "a", a, checked_product(KERNEL, a_shape)?)?;
    check_len(KERNEL, "b", b, checked_product(KERNEL, b_shape)?)?;
    check_len(KERNEL, "y", y, checked_product(KERNEL, &y_shape)?)?;
    if y.is_empty() {
        return Ok(());
    }
    let plan = Plan::new(&y_shape, a_shape, b_shape);
    let leaf = match op {
        Binary::Add => row_leaf::<Sum>,
        Binary::Sub => row_leaf::<Difference>,
        Binary::Mul => row_leaf::<Product>,
        Binary::Div => row_leaf::<Quotient>,
    };
    let width = plan.width;
    for_each(y.len() / width, grain(width), rows(y, width), |first, y| {
        leaf(&plan, first, a, b, y.data);
    });
    Ok(())
}

/// One axis: its size, and how far `a` and `b` step along it (0 where they repeat).
#[derive(Debug, Clone, Copy, Default)]
struct Axis {
    size: usize,
    a: usize,
    b: usize,
}

/// The axes with neighbours folded where both operands allow it: a row (the last folded axis)
/// and what is outside of it.
struct Plan {
    outer: [Axis; MAX_AXES],
    /// How many of `outer` are in use.
    outer_axes: usize,
    /// Elements of a row.
    width: usize,
    /// Step of `a` and `b` along a row: 0 or 1.
    a_step: usize,
    b_step: usize,
}

impl Plan {
    fn new(y: &[usize], a: &[usize], b: &[usize]) -> Self {
        let axes = y.len();
        let mut folded = [Axis::default(); MAX_AXES];
        let mut used = 0usize;
        let (mut a_stride, mut b_stride) = (1, 1);
        for axis in (0..axes).rev() {
            let (a_size, b_size) = (size_at(a, axes, axis), size_at(b, axes, axis));
            let next = Axis {
                size: y[axis],
                a: if a_size == 1 { 0 } else { a_stride },
                b: if b_size == 1 { 0 } else { b_stride },
            };
            a_stride *= a_size;
            b_stride *= b_size;
            if next.size == 1 {
                continue;
            }
            match used.checked_sub(1).map(|last| &mut folded[last]) {
                Some(last) if next.a == last.a * last.size && next.b == last.b * last.size => {
                    last.size *= next.size;
                }
                _ => {
                    folded[used] = next;
                    used += 1;
                }
            }
        }
        if used == 0 {
            return Self {
                outer: folded,
                outer_axes: 0,
                width: 1,
                a_step: 0,
                b_step: 0,
            };
        }
        let row = folded[0];
        folded.copy_within(1..used, 0);
        Self {
            outer: folded,
            outer_axes: used - 1,
            width: row.size,
            a_step: row.a,
            b_step: row.b,
        }
    }

    /// Where row number `row` begins in `a` and in `b`.
    #[inline(always)]
    fn offsets(&self, mut row: usize) -> (usize, usize) {
        let (mut a, mut b) = (0, 0);
        for axis in &self.outer[..self.outer_axes] {
            let at = row % axis.size;
            row /= axis.size;
            a += at * axis.a;
            b += at * axis.b;
        }
        (a, b)
    }
}

dispatch! {
    fn row_leaf<I, P: Pairing>(plan: &Plan, first: usize, a: &[f32], b: &[f32], y: &mut [f32]) {
        for (row, y) in y.chunks_exact_mut(plan.width).enumerate() {
            let (a_at, b_at) = plan.offsets(first + row);
            match (plan.a_step, plan.b_step) {
                (0, 0) => y.fill(P::apply::<I>(a[a_at], b[b_at])),
                (0, _) => {
                    let a = a[a_at];
                    for (y, &b) in y.iter_mut().zip(&b[b_at..]) {
                        *y = P::apply::<I>(a, b);
                    }
                }
                (_, 0) => {
                    let b = b[b_at];
                    for (y, &a) in y.iter_mut().zip(&a[a_at..]) {
                        *y = P::apply::<I>(a, b);
                    }
                }
                _ => {
                    for ((y, &a), &b) in y.iter_mut().zip(&a[a_at..]).zip(&b[b_at..]) {
                        *y = P::apply::<I>(a, b);
                    }
                }
            }
        }
    }
}
