//! The questions that many rules ask of their inputs.

use super::rule::Problem;
use crate::TensorType;

pub(super) type Checked<T = ()> = Result<T, Problem>;

/// `ty` holds floating-point numbers.
pub(super) fn float(role: &str, ty: &TensorType) -> Checked {
    if ty.dtype.is_float() {
        return Ok(());
    }
    Err(Problem::new(
        format!("{role} holds {}, not floating-point numbers", ty.dtype),
        format!("convert {role} to f32"),
    ))
}

/// All inputs hold the same floating-point type as the first.
pub(super) fn same_float(roles: &[&str], inputs: &[TensorType]) -> Checked {
    if let (Some(role), Some(first)) = (roles.first(), inputs.first()) {
        float(role, first)?;
    }
    same_dtype(roles, inputs)
}

/// All inputs hold the same type as the first.
pub(super) fn same_dtype(roles: &[&str], inputs: &[TensorType]) -> Checked {
    let (Some(first), Some(first_role)) = (inputs.first(), roles.first()) else {
        return Ok(());
    };
    for (ty, role) in inputs.iter().zip(roles) {
        if ty.dtype != first.dtype {
            return Err(Problem::new(
                format!("{first_role} is {} but {role} is {}", first.dtype, ty.dtype),
                format!("convert one of them: {role} to {}", first.dtype),
            ));
        }
    }
    Ok(())
}

/// `ty` has the sizes `[N, C, H, W]`, and at least one row and column.
pub(super) fn nchw(role: &str, ty: &TensorType) -> Checked<[usize; 4]> {
    let Ok(dims) = <[usize; 4]>::try_from(ty.shape.as_slice()) else {
        return Err(Problem::new(
            format!("{role} has {} dimensions, not 4", ty.rank()),
            format!("give {role} as [N, C, H, W]; a single image is [1, C, H, W]"),
        ));
    };
    let [_, _, height, width] = dims;
    if height == 0 || width == 0 {
        return Err(Problem::new(
            format!("{role} has no pixels"),
            format!("give {role} with at least one row and column"),
        ));
    }
    Ok(dims)
}

/// `ty` is a vector of `len` elements.
pub(super) fn vector(role: &str, ty: &TensorType, len: usize) -> Checked {
    if ty.shape == [len] {
        return Ok(());
    }
    Err(Problem::new(
        format!("{role} is {:?}, not [{len}]", ty.shape),
        format!("give a {role} of shape [{len}]"),
    ))
}

/// `dim` is a dimension of `ty`.
pub(super) fn dim(role: &str, ty: &TensorType, dim: usize) -> Checked {
    if dim < ty.rank() {
        return Ok(());
    }
    let range = match ty.rank() {
        0 => "a scalar has none; reshape it to [1] first".to_string(),
        rank => format!("name one of 0..={}", rank - 1),
    };
    Err(Problem::new(
        format!("{role} has no dimension {dim}"),
        range,
    ))
}

/// Every attribute in `values` is at least one.
pub(super) fn positive(name: &str, values: &[usize]) -> Checked {
    if values.iter().all(|&v| v > 0) {
        return Ok(());
    }
    Err(Problem::new(
        format!("{name} is {values:?}"),
        format!("every {name} must be at least 1"),
    ))
}

/// `p` is a probability that leaves something over.
pub(super) fn probability(p: f64) -> Checked {
    if (0.0..1.0).contains(&p) {
        return Ok(());
    }
    Err(Problem::new(
        format!("the drop probability is {p}"),
        "give one of 0 <= p < 1",
    ))
}

/// The number of steps that a window of `kernel` taps can take, PyTorch's formula:
/// `(size + 2·padding - dilation·(kernel - 1) - 1) / stride + 1`, rounded down, or up with `ceil` as long as the
/// last window starts inside the input or its leading padding.
pub(super) fn window_steps(axis: &str, size: usize, window: &Window, ceil: bool) -> Checked<usize> {
    let wide = |v: usize| v as i128;
    let span = wide(window.dilation)
        .checked_mul(wide(window.kernel) - 1)
        .and_then(|span| span.checked_add(1));
    let padded = wide(size) + 2 * wide(window.padding);
    let stride = wide(window.stride);
    let steps = span.map(|span| {
        let room = padded - span;
        let up = if ceil { stride - 1 } else { 0 };
        let steps = (room + up).div_euclid(stride) + 1;
        let starts_outside = (steps - 1) * stride >= wide(size) + wide(window.padding);
        if ceil && starts_outside {
            steps - 1
        } else {
            steps
        }
    });
    match steps.and_then(|steps| usize::try_from(steps).ok()) {
        Some(steps) if steps > 0 => Ok(steps),
        _ => Err(Problem::new(
            format!(
                "a window of {} (dilation {}) does not fit {axis} {size} with padding {}",
                window.kernel, window.dilation, window.padding
            ),
            "use a smaller kernel, more padding or a larger input",
        )),
    }
}

/// A window along one axis; all sizes but the padding at least one.
pub(super) struct Window {
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
    pub(super) dilation: usize,
}

/// The shape that two shapes broadcast to, aligned at the last dimension as NumPy and PyTorch do.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], i: usize| {
        let missing = rank - shape.len();
        if i < missing { 1 } else { shape[i - missing] }
    };
    (0..rank)
        .map(|i| match (size(a, i), size(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// Elements of a shape as `u64`, saturating.
pub(super) fn count(shape: &[usize]) -> u64 {
    shape
        .iter()
        .fold(1u64, |product, &size| product.saturating_mul(size as u64))
}

/// Elements of the first input, saturating; 0 without inputs.
pub(super) fn first_elements(inputs: &[TensorType]) -> u64 {
    inputs.first().map_or(0, TensorType::elements)
}
