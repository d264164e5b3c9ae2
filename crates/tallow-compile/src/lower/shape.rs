//! Moving elements: joining, cutting, permuting, repeating, and the two orders of images.

use tallow_graph::op::{Concat, Layout, Permute, Relayout, Slice};
use tallow_kernels::ChannelShape;
use tallow_kernels::channels_last::layout;
use tallow_kernels::strided::{self, Strided};

use super::{Lowered, Site};
use crate::Result;

/// The strides of a contiguous array.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

fn array(site: &Site<'_>, shape: &[usize], strides: &[usize], offset: usize) -> Result<Strided> {
    Strided::new(shape, strides, offset).map_err(|error| site.kernel_error(error))
}

fn gather(array: Strided) -> Lowered {
    Lowered::new(move |io| strided::gather(&array, io.floats(0), io.out))
}

pub(super) fn permute(site: &Site<'_>, op: &Permute) -> Result<Lowered> {
    let from = strides(site.shape(0));
    let permuted: Vec<usize> = op.dims.iter().map(|&dim| from[dim]).collect();
    Ok(gather(array(site, &site.output().shape, &permuted, 0)?))
}

pub(super) fn expand(site: &Site<'_>) -> Result<Lowered> {
    let (from, to) = (site.shape(0), &site.output().shape);
    let missing = to.len() - from.len();
    let own = strides(from);
    let stride = |axis: usize| match axis.checked_sub(missing) {
        Some(axis) if from[axis] != 1 => own[axis],
        _ => 0,
    };
    let repeated: Vec<usize> = (0..to.len()).map(stride).collect();
    Ok(gather(array(site, to, &repeated, 0)?))
}

/// The part of an array of `shape` that a slice takes.
fn part(site: &Site<'_>, shape: &[usize], op: &Slice) -> Result<Strided> {
    let mut steps = strides(shape);
    let offset = op.start * steps[op.dim];
    steps[op.dim] *= op.step;
    let mut part = shape.to_vec();
    part[op.dim] = (op.end - op.start).div_ceil(op.step);
    array(site, &part, &steps, offset)
}

pub(super) fn slice(site: &Site<'_>, op: &Slice) -> Result<Lowered> {
    Ok(gather(part(site, site.shape(0), op)?))
}

/// Zero where the slice took nothing.
pub(super) fn slice_backward(site: &Site<'_>, op: &Slice) -> Result<Lowered> {
    let part = part(site, &site.output().shape, op)?;
    Ok(Lowered::new(move |io| {
        io.out.fill(0.0);
        strided::scatter(&part, io.floats(0), io.out)
    }))
}

pub(super) fn concat(site: &Site<'_>, op: &Concat) -> Result<Lowered> {
    let to = &site.output().shape;
    let steps = strides(to);
    let mut parts = Vec::with_capacity(site.inputs.len());
    let mut start = 0;
    for input in &site.inputs {
        parts.push(array(site, &input.shape, &steps, start * steps[op.dim])?);
        start += input.shape[op.dim];
    }
    Ok(Lowered::new(move |io| {
        for (index, part) in parts.iter().enumerate() {
            strided::scatter(part, io.floats(index), io.out)?;
        }
        Ok(())
    }))
}

pub(super) fn relayout(site: &Site<'_>, op: &Relayout) -> Result<Lowered> {
    let [batch, channels, height, width] = site.image(site.shape(0))?;
    let shape = ChannelShape::new(batch, channels, height * width);
    Ok(match op.to {
        Layout::ChannelsLast => {
            Lowered::new(move |io| layout::to_channels_last(&shape, io.floats(0), io.out))
        }
        Layout::Contiguous => {
            Lowered::new(move |io| layout::to_channels_first(&shape, io.floats(0), io.out))
        }
    })
}
