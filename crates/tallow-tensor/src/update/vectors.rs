//! What surrounds an update: norms and sums of gradients, moving averages of parameters.
//!
//! f32 on the CPU goes through kernels, anything else through candle's arithmetic.

use candle_core::{DType, Error, Result, Tensor, Var};
use tallow_kernels::optimizer as kernels;

use crate::inplace;

/// The sum of the squares of all elements, in f64, to the same bits for any number of threads.
///
/// # Errors
///
/// Where candle can't compute it.
pub fn square_sum(tensor: &Tensor) -> Result<f64> {
    let tensor = tensor.detach().contiguous()?;
    if inplace::is_supported(&tensor) {
        return inplace::read_all(&[tensor], |values| {
            values.iter().map(|v| kernels::square_sum(v)).sum()
        });
    }
    tensor.to_dtype(DType::F64)?.sqr()?.sum_all()?.to_scalar()
}

/// `sum += factor · values`, in place.
///
/// # Errors
///
/// Shapes, types or devices that differ, or values that share memory with the sum.
pub fn add_scaled(sum: &Var, values: &Tensor, factor: f64) -> Result<()> {
    if !inplace::is_supported(sum) {
        return sum.set(&(sum.as_detached_tensor() + (values * factor)?)?);
    }
    inplace::zip2(sum, values, |sum, values| {
        kernels::add_scaled(factor as f32, values, sum).map_err(Error::wrap)
    })
}

/// `average += share · (values − average)`, in place: one step of an exponential moving average of decay `1 − share`.
///
/// # Errors
///
/// Shapes, types or devices that differ, or values that share memory with the average.
pub fn approach(average: &Var, values: &Tensor, share: f64) -> Result<()> {
    if !inplace::is_supported(average) {
        let old = average.as_detached_tensor();
        return average.set(&(&old + (values.sub(&old)? * share)?)?);
    }
    inplace::zip2(average, values, |average, values| {
        kernels::approach(share as f32, values, average).map_err(Error::wrap)
    })
}

/// Exchanges the values of two variables of one shape and type, to the bit.
///
/// # Errors
///
/// Shapes, types or devices that differ, or variables that share memory.
pub fn swap(a: &Var, b: &Var) -> Result<()> {
    if inplace::is_supported(a)
        && inplace::is_supported(b)
        && a.id() != b.id()
        && a.dims() == b.dims()
    {
        return inplace::update(a, |a| {
            inplace::update(b, |b| {
                a.swap_with_slice(b);
                Ok(())
            })
        });
    }
    let (old_a, old_b) = (
        a.as_detached_tensor().copy()?,
        b.as_detached_tensor().copy()?,
    );
    a.set(&old_b)?;
    b.set(&old_a)?;
    inplace::touch();
    Ok(())
}
