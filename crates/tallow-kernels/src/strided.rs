//! Copies between a contiguous array and one with strides: transposition, slicing, repetition, joining.

use crate::error::{Error, Result, check_len};
use crate::parallel;
use crate::shared::SharedMut;

/// An array of up to [`MAX_AXES`] dimensions inside a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strided {
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
}

/// The most dimensions.
pub const MAX_AXES: usize = 8;

impl Strided {
    /// Element `[i, j, ...]` lies at `offset + i * strides[0] + j * strides[1] + ...`; a stride of 0 repeats.
    ///
    /// # Errors
    /// [`Error::Geometry`] for more than [`MAX_AXES`] dimensions, or strides of another number.
    pub fn new(shape: &[usize], strides: &[usize], offset: usize) -> Result<Self> {
        if shape.len() != strides.len() || shape.len() > MAX_AXES {
            return Err(Error::Geometry {
                kernel: "strided copy",
                problem: format!(
                    "{} dimensions with {} strides; give one stride a dimension, for at most {MAX_AXES}",
                    shape.len(),
                    strides.len()
                ),
            });
        }
        Ok(Self::merged(shape, strides, offset))
    }

    /// Drops dimensions of size 1 and joins those that lie one after the other.
    fn merged(shape: &[usize], strides: &[usize], offset: usize) -> Self {
        let mut merged: Vec<(usize, usize)> = Vec::with_capacity(MAX_AXES);
        for (&size, &stride) in shape.iter().zip(strides) {
            match merged.last_mut() {
                _ if size == 1 => {}
                Some(last) if last.1 == size * stride => *last = (last.0 * size, stride),
                _ => merged.push((size, stride)),
            }
        }
        Self {
            shape: merged.iter().map(|axis| axis.0).collect(),
            strides: merged.iter().map(|axis| axis.1).collect(),
            offset,
        }
    }

    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// One past the last element in the slice.
    fn end(&self) -> usize {
        let axes = self.shape.iter().zip(&self.strides);
        self.offset
            + axes
                .map(|(size, stride)| (size - 1) * stride)
                .sum::<usize>()
            + 1
    }

    /// Size and stride of the innermost dimension.
    fn row(&self) -> (usize, usize) {
        match (self.shape.last(), self.strides.last()) {
            (Some(&size), Some(&stride)) => (size, stride),
            _ => (1, 1),
        }
    }

    /// Where row number `index` starts.
    fn row_start(&self, mut index: usize) -> usize {
        let mut start = self.offset;
        let outer = self.shape.len().saturating_sub(1);
        for axis in (0..outer).rev() {
            start += index % self.shape[axis] * self.strides[axis];
            index /= self.shape[axis];
        }
        start
    }
}

/// `y[i, j, ...] = x` at the place of `[i, j, ...]`: `y` is contiguous.
///
/// ```
/// use tallow_kernels::strided::{self, Strided};
///
/// // A [2, 3] matrix, transposed.
/// let mut y = [0.0; 6];
/// strided::gather(&Strided::new(&[3, 2], &[1, 3], 0)?, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &mut y)?;
/// assert_eq!(y, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
///
/// # Errors
/// [`Error::Length`] where `y` has another length than the array, or `x` ends before it.
pub fn gather(array: &Strided, x: &[f32], y: &mut [f32]) -> Result<()> {
    const KERNEL: &str = "strided gather";
    check_len(KERNEL, "y", y, array.len())?;
    if y.is_empty() {
        return Ok(());
    }
    check_reach(KERNEL, "x", x.len(), array)?;
    let (width, stride) = array.row();
    let rows = parallel::rows(y, width);
    let count = array.len() / width;
    parallel::for_each(count, parallel::grain(width), rows, |first, rows| {
        for (row, y) in (first..).zip(rows.data.chunks_exact_mut(width)) {
            let start = array.row_start(row);
            match stride {
                0 => y.fill(x[start]),
                1 => y.copy_from_slice(&x[start..start + width]),
                _ => {
                    let from = x[start..].iter().step_by(stride);
                    y.iter_mut().zip(from).for_each(|(y, x)| *y = *x);
                }
            }
        }
    });
    Ok(())
}

/// `y` at the place of `[i, j, ...] = x[i, j, ...]`: `x` is contiguous. Other elements of `y` stay as they are.
///
/// # Errors
/// [`Error::Length`] where `x` has another length than the array, or `y` ends before it; [`Error::Geometry`] where
/// elements of the array share a place.
pub fn scatter(array: &Strided, x: &[f32], y: &mut [f32]) -> Result<()> {
    const KERNEL: &str = "strided scatter";
    check_len(KERNEL, "x", x, array.len())?;
    if x.is_empty() {
        return Ok(());
    }
    check_reach(KERNEL, "y", y.len(), array)?;
    check_distinct(KERNEL, array)?;
    let (width, stride) = array.row();
    let rows = parallel::rows(x, width);
    let y = SharedMut::new(y);
    let count = array.len() / width;
    parallel::for_each(count, parallel::grain(width), rows, |first, rows| {
        for (row, x) in (first..).zip(rows.data.chunks_exact(width)) {
            let reach = (width - 1) * stride + 1;
            let start = array.row_start(row);
            if stride == 1 {
                // SAFETY: no two elements of the array share a place, so that this row is written here alone.
                unsafe { y.slice(start, reach) }.copy_from_slice(x);
                continue;
            }
            for (place, &value) in x.iter().enumerate() {
                // SAFETY: as above, for this element; `at` checks that it lies in the slice.
                unsafe { *y.at(start + place * stride, 1) = value };
            }
        }
    });
    Ok(())
}

fn check_reach(
    kernel: &'static str,
    operand: &'static str,
    found: usize,
    array: &Strided,
) -> Result<()> {
    let expected = array.end();
    if found >= expected {
        return Ok(());
    }
    Err(Error::Length {
        kernel,
        operand,
        expected,
        found,
    })
}

/// Sorted by stride, each dimension must step over all that the smaller ones reach.
fn check_distinct(kernel: &'static str, array: &Strided) -> Result<()> {
    let mut axes: Vec<_> = array.strides.iter().zip(&array.shape).collect();
    axes.sort_unstable();
    let mut reach = 1;
    for (&stride, &size) in axes {
        if stride < reach {
            return Err(Error::Geometry {
                kernel,
                problem: format!(
                    "elements of {:?} with strides {:?} share a place; give strides that keep them apart",
                    array.shape, array.strides
                ),
            });
        }
        reach += (size - 1) * stride;
    }
    Ok(())
}
