//! Matrix products, tables and attention, through one GEMM.

use tallow_kernels::matrix::{Matrix, Operands, product};
use tallow_kernels::{embedding as table, softmax};

use super::{Io, Lowered, Site};
use crate::Result;

const SET: [f32; 2] = [1.0, 0.0];

/// For the CPU's instructions for bfloat16, or as they are.
fn operands(site: &Site<'_>) -> Operands {
    match site.bf16 {
        true => Operands::Bf16,
        false => Operands::Exact,
    }
}

/// Rows, inputs and outputs of a linear layer.
fn layer(weight: &[usize], rows: u64) -> [usize; 3] {
    match *weight {
        [outputs, inputs] => [rows as usize / inputs.max(1), inputs, outputs],
        _ => [0, 0, 0],
    }
}

pub(super) fn linear(site: &Site<'_>) -> Result<Lowered> {
    let operands = operands(site);
    let [rows, inputs, outputs] = layer(site.shape(1), site.inputs[0].elements());
    let bias = site.inputs.len() > 2;
    Ok(Lowered::new(move |io| {
        if bias {
            let bias = io.floats(2);
            io.out
                .chunks_exact_mut(outputs)
                .for_each(|row| row.copy_from_slice(bias));
        }
        let (x, w) = (
            Matrix::new(io.floats(0), inputs),
            Matrix::new(io.floats(1), inputs).t(),
        );
        let beta = if bias { 1.0 } else { 0.0 };
        product(
            operands,
            [1, rows, inputs, outputs],
            x,
            w,
            io.out,
            [1.0, beta],
        )
    }))
}

/// `dX = dY W` from dy and weight.
pub(super) fn linear_backward_input(site: &Site<'_>) -> Result<Lowered> {
    let operands = operands(site);
    let [rows, inputs, outputs] = layer(site.shape(1), site.output().elements());
    Ok(Lowered::new(move |io| {
        let (dy, w) = (
            Matrix::new(io.floats(0), outputs),
            Matrix::new(io.floats(1), inputs),
        );
        product(operands, [1, rows, outputs, inputs], dy, w, io.out, SET)
    }))
}

/// `dW = dYᵀ X` from dy and x.
pub(super) fn linear_backward_weight(site: &Site<'_>) -> Result<Lowered> {
    let operands = operands(site);
    let [rows, inputs, outputs] = layer(&site.output().shape, site.inputs[1].elements());
    Ok(Lowered::new(move |io| {
        let (dy, x) = (
            Matrix::new(io.floats(0), outputs).t(),
            Matrix::new(io.floats(1), inputs),
        );
        product(operands, [1, outputs, rows, inputs], dy, x, io.out, SET)
    }))
}

/// `[.., M, K]` times `[.., K, N]`, leading dimensions broadcast.
pub(super) fn matmul(site: &Site<'_>) -> Result<Lowered> {
    let operands = operands(site);
    let (a, b) = (site.shape(0).to_vec(), site.shape(1).to_vec());
    let out = &site.output().shape;
    let leading = out.len() - 2;
    let (m, n, k) = (out[leading], out[leading + 1], b[b.len() - 2]);
    let batch: usize = out[..leading].iter().product();
    let (a_batch, b_batch) = (&a[..a.len() - 2], &b[..b.len() - 2]);
    let count = |dims: &[usize]| dims.iter().product::<usize>();
    if count(b_batch) == 1 && count(a_batch) == batch {
        // One matrix for the whole batch: its rows are those of one product.
        return Ok(Lowered::new(move |io| {
            let (a, b) = (Matrix::new(io.floats(0), k), Matrix::new(io.floats(1), n));
            product(operands, [1, batch * m, k, n], a, b, io.out, SET)
        }));
    }
    let whole = |dims: &[usize]| count(dims) == batch || count(dims) == 1;
    if whole(a_batch) && whole(b_batch) {
        return Ok(Lowered::new(move |io| {
            let (a, b) = (Matrix::new(io.floats(0), k), Matrix::new(io.floats(1), n));
            product(operands, [batch, m, k, n], a, b, io.out, SET)
        }));
    }
    let places = |dims: &[usize]| -> Vec<usize> {
        (0..batch)
            .map(|index| broadcast_place(index, &out[..leading], dims))
            .collect()
    };
    let (a_places, b_places) = (places(a_batch), places(b_batch));
    Ok(Lowered::new(move |io| {
        let (a, b) = (io.floats(0), io.floats(1));
        for (index, c) in io.out.chunks_exact_mut(m * n).enumerate() {
            let a = &a[a_places[index] * m * k..][..m * k];
            let b = &b[b_places[index] * k * n..][..k * n];
            product(
                operands,
                [1, m, k, n],
                Matrix::new(a, k),
                Matrix::new(b, n),
                c,
                SET,
            )?;
        }
        Ok(())
    }))
}

/// Which matrix of an operand with leading dimensions `dims` belongs to result number `index` of `out`.
fn broadcast_place(mut index: usize, out: &[usize], dims: &[usize]) -> usize {
    let missing = out.len() - dims.len();
    let (mut place, mut step) = (0, 1);
    for axis in (0..out.len()).rev() {
        let coordinate = index % out[axis];
        index /= out[axis];
        if axis >= missing && dims[axis - missing] != 1 {
            place += coordinate * step;
            step *= dims[axis - missing];
        }
    }
    place
}

/// `softmax(scale · q · kᵀ) · v`.
pub(super) fn attention(site: &Site<'_>, scale: f64) -> Result<Lowered> {
    // Weights are softmax's, which stay as they are.
    let operands = Operands::Exact;
    let [n, heads, queries, width] = site.image(site.shape(0))?;
    let [.., keys, value_width] = site.image(site.shape(2))?;
    let batch = n * heads;
    Ok(Lowered::new(move |io| {
        let len = batch * queries * keys;
        let mut scores = io.workspace.take(len);
        let (q, k) = (
            Matrix::new(io.floats(0), width),
            Matrix::new(io.floats(1), width).t(),
        );
        product(
            operands,
            [batch, queries, width, keys],
            q,
            k,
            &mut scores,
            [scale as f32, 0.0],
        )?;
        let mut shares = io.workspace.take(len);
        softmax::softmax([batch * queries, keys], &scores, &mut shares)?;
        let (p, v) = (
            Matrix::new(&shares, keys),
            Matrix::new(io.floats(2), value_width),
        );
        product(
            operands,
            [batch, queries, keys, value_width],
            p,
            v,
            io.out,
            SET,
        )
    }))
}

fn table_size(shape: &[usize]) -> [usize; 2] {
    match *shape {
        [rows, width] => [rows, width],
        _ => [0, 0],
    }
}

/// Ids as the kernels take them; one that is too large for any table stays so.
fn ids(io: &Io<'_>, input: usize) -> Vec<u32> {
    let ids = io.ints(input).unwrap_or(&[]).iter();
    ids.map(|&id| u32::try_from(id).unwrap_or(u32::MAX))
        .collect()
}

pub(super) fn embedding(site: &Site<'_>) -> Result<Lowered> {
    let size = table_size(site.shape(1));
    Ok(Lowered::new(move |io| {
        table::embedding(size, &ids(io, 0), io.floats(1), io.out)
    }))
}

/// From dy and ids.
pub(super) fn embedding_backward(site: &Site<'_>) -> Result<Lowered> {
    let size = table_size(&site.output().shape);
    Ok(Lowered::new(move |io| {
        table::embedding_backward(size, &ids(io, 1), io.floats(0), io.out)
    }))
}
