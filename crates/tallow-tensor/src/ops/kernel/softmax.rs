//! Softmax, its logarithm, and attention around it; the gradients follow from the outputs.

use candle_core::{Result, Tensor};
use std::sync::{Arc, OnceLock};
use tallow_kernels::softmax;

use super::product::{SET, Sizes, product};
use super::tape::Gradients;
use super::{Backward, Kernel, Outcome};
use tallow_kernels::matrix::Matrix;

/// Softmax along `dim`.
pub(crate) fn softmax(xs: &Tensor, dim: usize) -> Result<Tensor> {
    along(xs, dim, |xs, shape| {
        Kernel::new(
            "softmax",
            xs.dims(),
            move |[x], y| softmax::softmax(shape, x, y),
            move |b| Ok([b.gradient(0, |dx| softmax::softmax_backward(shape, b.out, b.grad, dx))?]),
        )
        .apply([xs])
    })
}

/// Logarithm of the softmax along `dim`.
pub(crate) fn log_softmax(xs: &Tensor, dim: usize) -> Result<Tensor> {
    along(xs, dim, |xs, shape| {
        Kernel::new(
            "log_softmax",
            xs.dims(),
            move |[x], y| softmax::log_softmax(shape, x, y),
            move |b| {
                Ok([b.gradient(0, |dx| {
                    softmax::log_softmax_backward(shape, b.out, b.grad, dx)
                })?])
            },
        )
        .apply([xs])
    })
}

/// The kernels go along the last dimension, so another one trades places with it.
fn along(
    xs: &Tensor,
    dim: usize,
    rows: impl FnOnce(&Tensor, [usize; 2]) -> Result<Tensor>,
) -> Result<Tensor> {
    let last = xs.rank() - 1;
    let width = xs.dims()[dim];
    let shape = [xs.elem_count() / width, width];
    if dim == last {
        return rows(xs, shape);
    }
    let swapped = xs.transpose(dim, last)?.contiguous()?;
    rows(&swapped, shape)?.transpose(dim, last)
}

/// Sizes of an attention: pairs of batch and head, queries, keys, and the widths of keys and values.
#[derive(Clone, Copy)]
struct Heads {
    pairs: usize,
    queries: usize,
    keys: usize,
    width: usize,
    value_width: usize,
}

impl Heads {
    fn scores(&self) -> usize {
        self.pairs * self.queries * self.keys
    }

    fn rows(&self) -> [usize; 2] {
        [self.pairs * self.queries, self.keys]
    }

    fn sizes(&self, m: usize, k: usize, n: usize) -> Sizes {
        Sizes {
            batch: self.pairs,
            m,
            k,
            n,
        }
    }
}

/// `softmax(scale q k^T) v`, keeping the probabilities for the gradients.
pub(crate) fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    scale: f64,
    out: &[usize],
) -> Result<Tensor> {
    let (batch, heads, queries, width) = q.dims4()?;
    let (_, _, keys, value_width) = v.dims4()?;
    let heads = Heads {
        pairs: batch * heads,
        queries,
        keys,
        width,
        value_width,
    };
    let scale = scale as f32;
    let probabilities = Arc::new(OnceLock::new());
    let recall = probabilities.clone();
    Kernel::new(
        "attention",
        out,
        move |[q, k, v], y| {
            let probs = attend(&heads, q, k, scale)?;
            let probs = probabilities.get_or_init(|| probs);
            product(
                heads.sizes(heads.queries, heads.keys, heads.value_width),
                Matrix::new(probs, heads.keys),
                Matrix::new(v, heads.value_width),
                y,
                SET,
            )
        },
        move |b| backward(&heads, recall.get().map_or(&[], Vec::as_slice), scale, b),
    )
    .apply([q, k, v])
}

/// The probabilities `softmax(scale q k^T)`.
fn attend(heads: &Heads, q: &[f32], k: &[f32], scale: f32) -> Outcome<Vec<f32>> {
    let mut scores = vec![0f32; heads.scores()];
    product(
        heads.sizes(heads.queries, heads.width, heads.keys),
        Matrix::new(q, heads.width),
        Matrix::new(k, heads.width).t(),
        &mut scores,
        [scale, 0.],
    )?;
    let mut probs = vec![0f32; heads.scores()];
    softmax::softmax(heads.rows(), &scores, &mut probs)?;
    Ok(probs)
}

/// With `P` the probabilities and `S` the scores: `dV = P^T dY`, `dP = dY V^T`, `dS` through the softmax,
/// `dQ = scale dS K`, `dK = scale dS^T Q`.
fn backward(
    heads: &Heads,
    probs: &[f32],
    scale: f32,
    b: &Backward<'_, 3>,
) -> Outcome<Gradients<3>> {
    let Heads {
        queries,
        keys,
        width,
        value_width,
        ..
    } = *heads;
    let [q, k, v] = b.inputs;
    let dy = Matrix::new(b.grad, value_width);
    let dv = b.gradient(2, |dv| {
        let sizes = heads.sizes(keys, queries, value_width);
        product(sizes, Matrix::new(probs, keys).t(), dy, dv, SET)
    })?;
    if !(b.needed[0] || b.needed[1]) {
        return Ok([None, None, dv]);
    }
    let mut dp = vec![0f32; heads.scores()];
    let sizes = heads.sizes(queries, value_width, keys);
    product(sizes, dy, Matrix::new(v, value_width).t(), &mut dp, SET)?;
    let mut ds = vec![0f32; heads.scores()];
    softmax::softmax_backward(heads.rows(), probs, &dp, &mut ds)?;
    let ds = Matrix::new(&ds, keys);
    Ok([
        b.gradient(0, |dq| {
            let sizes = heads.sizes(queries, keys, width);
            product(sizes, ds, Matrix::new(k, width), dq, [scale, 0.])
        })?,
        b.gradient(1, |dk| {
            let sizes = heads.sizes(keys, queries, width);
            product(sizes, ds.t(), Matrix::new(q, width), dk, [scale, 0.])
        })?,
        dv,
    ])
}
