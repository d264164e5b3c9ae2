//! Softmax, its logarithm, and the losses made of them.

use tallow_graph::op::CrossEntropy;
use tallow_kernels::loss::{self, Targets};
use tallow_kernels::softmax as kernels;

use super::{Io, Lowered, Outcome, Site};
use crate::Result;

/// Rows and columns where the last dimension is the one that sums to one.
fn rows(site: &Site<'_>, dim: usize) -> Result<[usize; 2]> {
    let shape = &site.output().shape;
    if dim + 1 != shape.len() {
        return Err(site.unsupported(
            "works along the last dimension in compiled plans",
            "permute that dimension to the end first",
        ));
    }
    let width = shape[dim];
    Ok([site.output().elements() as usize / width.max(1), width])
}

pub(super) fn softmax(site: &Site<'_>, dim: usize) -> Result<Lowered> {
    let rows = rows(site, dim)?;
    Ok(Lowered::new(move |io| {
        kernels::softmax(rows, io.floats(0), io.out)
    }))
}

pub(super) fn log_softmax(site: &Site<'_>, dim: usize) -> Result<Lowered> {
    let rows = rows(site, dim)?;
    Ok(Lowered::new(move |io| {
        kernels::log_softmax(rows, io.floats(0), io.out)
    }))
}

/// From dy and y.
pub(super) fn softmax_backward(site: &Site<'_>, dim: usize) -> Result<Lowered> {
    let rows = rows(site, dim)?;
    Ok(Lowered::new(move |io| {
        kernels::softmax_backward(rows, io.floats(1), io.floats(0), io.out)
    }))
}

/// From dy and y.
pub(super) fn log_softmax_backward(site: &Site<'_>, dim: usize) -> Result<Lowered> {
    let rows = rows(site, dim)?;
    Ok(Lowered::new(move |io| {
        kernels::log_softmax_backward(rows, io.floats(1), io.floats(0), io.out)
    }))
}

/// Stands for an ignored row. No table of classes is that long.
const IGNORED: u32 = u32::MAX;

/// A cross entropy of `[rows, classes]`.
#[derive(Clone, Copy)]
struct Loss {
    shape: [usize; 2],
    label_smoothing: f64,
    ignore_index: Option<i64>,
}

impl Loss {
    fn new(shape: &[usize], op: &CrossEntropy) -> Self {
        Self {
            shape: match *shape {
                [rows, classes] => [rows, classes],
                _ => [0, 0],
            },
            label_smoothing: op.label_smoothing,
            ignore_index: op.ignore_index,
        }
    }

    /// Calls a kernel with the targets that input `input` holds.
    fn with_targets<R>(
        &self,
        io: &Io<'_>,
        input: usize,
        kernel: impl FnOnce(&loss::CrossEntropy, Targets<'_>) -> R,
    ) -> R {
        let settings = |ignore_index| loss::CrossEntropy {
            label_smoothing: self.label_smoothing,
            ignore_index,
        };
        let Some(ids) = io.ints(input) else {
            return kernel(&settings(None), Targets::Soft(io.floats(input)));
        };
        let class = |&id: &i64| match self.ignore_index {
            Some(ignored) if ignored == id => IGNORED,
            // One below the mark of ignored rows: out of range of any table, and refused as such.
            _ => u32::try_from(id).unwrap_or(IGNORED - 1),
        };
        let classes: Vec<u32> = ids.iter().map(class).collect();
        let ignored = self.ignore_index.map(|_| i64::from(IGNORED));
        kernel(&settings(ignored), Targets::Indices(&classes))
    }
}

pub(super) fn cross_entropy(site: &Site<'_>, op: &CrossEntropy) -> Result<Lowered> {
    let loss = Loss::new(site.shape(0), op);
    Ok(Lowered::new(move |io| {
        let mut shares = io.workspace.take(loss.shape.iter().product());
        let value = loss.with_targets(io, 1, |config, targets| {
            loss::cross_entropy(config, loss.shape, io.floats(0), targets, &mut shares)
        })?;
        io.out[0] = value;
        Ok(())
    }))
}

/// From dy, logits and targets.
pub(super) fn cross_entropy_backward(site: &Site<'_>, op: &CrossEntropy) -> Result<Lowered> {
    let loss = Loss::new(&site.output().shape, op);
    Ok(Lowered::new(move |io| backward(&loss, io)))
}

fn backward(loss: &Loss, io: &mut Io<'_>) -> Outcome {
    let mut shares = io.workspace.take(loss.shape.iter().product());
    let (d_loss, logits) = (io.floats(0)[0], io.floats(1));
    let out = std::mem::take(&mut io.out);
    let result = loss.with_targets(io, 2, |config, targets| {
        loss::cross_entropy(config, loss.shape, logits, targets, &mut shares)?;
        loss::cross_entropy_backward(config, loss.shape, &shares, targets, d_loss, out)
    });
    io.out = out;
    result
}
