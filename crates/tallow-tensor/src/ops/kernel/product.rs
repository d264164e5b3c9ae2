//! Matrix products through one GEMM, in any orientation.

use candle_core::{Result, Tensor};
use tallow_kernels::matrix::{self, Matrix, Operands};
use tallow_kernels::reduce;

use super::{Kernel, Outcome};

/// Batch, rows, terms and columns of a batch of products.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
}

impl Sizes {
    fn one(m: usize, k: usize, n: usize) -> Self {
        Self { batch: 1, m, k, n }
    }
}

/// `c = alpha a b + beta c` for each of a batch of matrices stored one after the other.
pub(super) fn product(
    sizes: Sizes,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [f32],
    factors: [f32; 2],
) -> Outcome<()> {
    let Sizes { batch, m, k, n } = sizes;
    matrix::product(Operands::Exact, [batch, m, k, n], a, b, c, factors)
}

/// Overwrites `c`.
pub(super) const SET: [f32; 2] = [1., 0.];
/// Adds to `c`.
const ADD: [f32; 2] = [1., 1.];

/// `xs` `[.., I]`, `weight` `[O, I]`, optional bias `[O]`.
pub(crate) fn linear(
    xs: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    out: &[usize],
) -> Result<Tensor> {
    let (o, i) = weight.dims2()?;
    let rows = xs.elem_count() / i;
    let layer = Layer { rows, o, i };
    match bias {
        None => Kernel::new(
            "linear",
            out,
            move |[x, w], y| layer.forward(x, w, y, SET),
            move |b| {
                let [x, w] = b.inputs;
                Ok([
                    b.gradient(0, |dx| layer.input_gradient(w, b.grad, dx))?,
                    b.gradient(1, |dw| layer.weight_gradient(x, b.grad, dw))?,
                ])
            },
        )
        .apply([xs, weight]),
        Some(bias) => Kernel::new(
            "linear",
            out,
            move |[x, w, bias], y| {
                y.chunks_exact_mut(o)
                    .for_each(|row| row.copy_from_slice(bias));
                layer.forward(x, w, y, ADD)
            },
            move |b| {
                let [x, w, _] = b.inputs;
                Ok([
                    b.gradient(0, |dx| layer.input_gradient(w, b.grad, dx))?,
                    b.gradient(1, |dw| layer.weight_gradient(x, b.grad, dw))?,
                    b.gradient(2, |db| reduce::sum_axis([1, rows, o], b.grad, 1., db))?,
                ])
            },
        )
        .apply([xs, weight, bias]),
    }
}

/// Sizes of a linear layer: rows, output and input features.
#[derive(Clone, Copy)]
struct Layer {
    rows: usize,
    o: usize,
    i: usize,
}

impl Layer {
    /// `Y = X W^T`.
    fn forward(self, x: &[f32], w: &[f32], y: &mut [f32], factors: [f32; 2]) -> Outcome<()> {
        let Self { rows, o, i } = self;
        let (x, w) = (Matrix::new(x, i), Matrix::new(w, i).t());
        product(Sizes::one(rows, i, o), x, w, y, factors)
    }

    /// `dX = dY W`.
    fn input_gradient(self, w: &[f32], dy: &[f32], dx: &mut [f32]) -> Outcome<()> {
        let Self { rows, o, i } = self;
        let (dy, w) = (Matrix::new(dy, o), Matrix::new(w, i));
        product(Sizes::one(rows, o, i), dy, w, dx, SET)
    }

    /// `dW = dY^T X`.
    fn weight_gradient(self, x: &[f32], dy: &[f32], dw: &mut [f32]) -> Outcome<()> {
        let Self { rows, o, i } = self;
        let (dy, x) = (Matrix::new(dy, o).t(), Matrix::new(x, i));
        product(Sizes::one(o, rows, i), dy, x, dw, SET)
    }
}

/// `[.., M, K]` times `[.., K, N]`.
pub(crate) fn matmul(a: &Tensor, b: &Tensor, out: &[usize]) -> Result<Tensor> {
    let (k, n) = (b.dims()[b.rank() - 2], b.dims()[b.rank() - 1]);
    let batch_rank = out.len() - 2;
    if b.rank() == 2 && a.rank() > 2 {
        // One matrix for the whole batch: its rows are those of one product.
        let rows = a.reshape((a.elem_count() / k, k))?;
        let flat = [rows.dims()[0], n];
        return matmul(&rows, b, &flat)?.reshape(out);
    }
    let spread = |operand: &Tensor| -> Result<Tensor> {
        let mut shape = out[..batch_rank].to_vec();
        shape.extend(&operand.dims()[operand.rank() - 2..]);
        if shape == operand.dims() {
            return Ok(operand.clone());
        }
        operand.broadcast_as(shape)?.contiguous()
    };
    let (a, b) = (spread(a)?, spread(b)?);
    let sizes = Sizes {
        batch: out[..batch_rank].iter().product(),
        m: out[batch_rank],
        k,
        n,
    };
    Kernel::new(
        "matmul",
        out,
        move |[a, b], c| product(sizes, Matrix::new(a, k), Matrix::new(b, n), c, SET),
        move |bwd| {
            let [a, b] = bwd.inputs;
            let Sizes { batch, m, k, n } = sizes;
            let da = Sizes {
                batch,
                m,
                k: n,
                n: k,
            };
            let db = Sizes {
                batch,
                m: k,
                k: m,
                n,
            };
            let dc = Matrix::new(bwd.grad, n);
            Ok([
                bwd.gradient(0, |grad| product(da, dc, Matrix::new(b, n).t(), grad, SET))?,
                bwd.gradient(1, |grad| product(db, Matrix::new(a, k).t(), dc, grad, SET))?,
            ])
        },
    )
    .apply([&a, &b])
}
