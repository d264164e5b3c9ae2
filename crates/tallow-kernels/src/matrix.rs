//! Products of row-major matrices, each read as it is or transposed: [`gemm`] without its strides.

use crate::bf16;
use crate::error::Result;
use crate::gemm::{self, BatchSteps, GemmArgs};

/// One matrix, or a batch stored one after the other, row by row; read as it is or transposed.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    values: &'a [f32],
    /// Columns as stored.
    width: usize,
    transposed: bool,
}

impl<'a> Matrix<'a> {
    /// Rows of `width` elements.
    pub fn new(values: &'a [f32], width: usize) -> Self {
        Self {
            values,
            width,
            transposed: false,
        }
    }

    /// The transposed matrix, in the same memory.
    pub fn t(self) -> Self {
        Self {
            transposed: !self.transposed,
            ..self
        }
    }

    fn strides(&self) -> (usize, usize) {
        match self.transposed {
            false => (self.width, 1),
            true => (1, self.width),
        }
    }

    /// From one matrix of the batch to the next; none if one serves all.
    fn step(&self, size: usize) -> usize {
        if self.values.len() == size { 0 } else { size }
    }
}

/// Which numbers are multiplied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Operands {
    /// As they are.
    #[default]
    Exact,
    /// Rounded to [`bf16`].
    Bf16,
}

/// `c = alpha a b + beta c` for `batch` matrices of `[m, k]` times `[k, n]`; a factor that is stored once serves all.
///
/// ```
/// use tallow_kernels::matrix::{Matrix, Operands, product};
///
/// let (x, w, mut y) = ([1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 0.0, 2.0, 5.0, 5.0], [0.0; 6]);
/// // x wᵀ: [2, 2] times the transpose of [3, 2].
/// let (x, w) = (Matrix::new(&x, 2), Matrix::new(&w, 2).t());
/// product(Operands::Exact, [1, 2, 2, 3], x, w, &mut y, [1.0, 0.0])?;
/// assert_eq!(y, [3.0, 4.0, 15.0, 7.0, 8.0, 35.0]);
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
///
/// # Errors
/// As [`gemm::gemm()`].
pub fn product(
    operands: Operands,
    [batch, m, k, n]: [usize; 4],
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [f32],
    [alpha, beta]: [f32; 2],
) -> Result<()> {
    let ((a_rs, a_cs), (b_rs, b_cs)) = (a.strides(), b.strides());
    let steps = BatchSteps {
        a: a.step(m * k),
        b: b.step(k * n),
        c: m * n,
    };
    let args = GemmArgs {
        m,
        n,
        k,
        a: a.values,
        a_rs,
        a_cs,
        b: b.values,
        b_rs,
        b_cs,
        c,
        c_rs: n,
        c_cs: 1,
        alpha,
        beta,
    };
    match operands {
        Operands::Exact => gemm::batched(batch, steps, args),
        Operands::Bf16 => bf16::batched(batch, steps, args),
    }
}
