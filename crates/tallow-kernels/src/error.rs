//! What can go wrong in a kernel: a slice of another length than the shape says, a geometry
//! that has no output, an index outside its table, a parameter outside its range.
//!
//! Kernels know nothing of tensors or modules, so their errors name the kernel and its operand;
//! the layers above add the module path.

/// Result of every kernel.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a kernel refused to run. Nothing was written to any output when one is returned, except
/// by [`Error::Index`] of a kernel that documents otherwise.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A slice doesn't hold as many elements as the shape given with it.
    #[error(
        "{kernel}: `{operand}` holds {found} elements, but its shape asks for {expected}; \
         pass the contiguous data of exactly that shape"
    )]
    Length {
        /// The kernel that was called.
        kernel: &'static str,
        /// The argument that is wrong.
        operand: &'static str,
        /// Elements that the shape asks for.
        expected: usize,
        /// Elements that the slice holds.
        found: usize,
    },
    /// Sizes that no output can be computed for, such as a window larger than its padded input.
    #[error("{kernel}: {problem}")]
    Geometry {
        /// The kernel that was called.
        kernel: &'static str,
        /// What was asked, what was found and what to change.
        problem: String,
    },
    /// A number outside the range that the formula allows, such as a dropout rate of 1.5.
    #[error("{kernel}: {parameter} is {found}, but has to be {allowed}")]
    Parameter {
        /// The kernel that was called.
        kernel: &'static str,
        /// The parameter that is wrong.
        parameter: &'static str,
        /// Its value.
        found: f64,
        /// The values allowed, in words.
        allowed: &'static str,
    },
    /// A class or table index that is out of range.
    #[error(
        "{kernel}: row {row} asks for index {value}, but there are {bound} \
         (valid: 0 to {}); check the labels, ids or indices", bound.saturating_sub(1)
    )]
    Index {
        /// The kernel that was called.
        kernel: &'static str,
        /// Position of the index in its slice.
        row: usize,
        /// The index found there.
        value: u64,
        /// Number of entries it may choose from.
        bound: usize,
    },
    /// A SIMD level that isn't one of the known names.
    #[error("`{found}` is no SIMD level: use portable, avx2, avx512 or avx512bf16")]
    UnknownLevel {
        /// The name given.
        found: String,
    },
}

/// Fails unless `slice` holds `expected` elements.
pub(crate) fn check_len<T>(
    kernel: &'static str,
    operand: &'static str,
    slice: &[T],
    expected: usize,
) -> Result<()> {
    if slice.len() == expected {
        return Ok(());
    }
    Err(Error::Length {
        kernel,
        operand,
        expected,
        found: slice.len(),
    })
}

/// Product of sizes, or a geometry error where it doesn't fit in a `usize`.
pub(crate) fn checked_product(kernel: &'static str, sizes: &[usize]) -> Result<usize> {
    sizes
        .iter()
        .try_fold(1usize, |product, &size| product.checked_mul(size))
        .ok_or_else(|| Error::Geometry {
            kernel,
            problem: format!("the shape {sizes:?} has more elements than memory can address"),
        })
}
