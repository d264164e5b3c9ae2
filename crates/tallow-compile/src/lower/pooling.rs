//! Pools of images channels last, and resizing in the order of the dimensions.

use tallow_graph::op::{AvgPool2d, Grad, Interpolate, Interpolation, MaxPool2d};
use tallow_kernels::channels_last::pool;
use tallow_kernels::interpolate::{self as resize, Interpolate2d, Mode};
use tallow_kernels::pool::{AdaptivePool2dGeometry, Pool2dGeometry};

use super::{Lowered, Site};
use crate::Result;

/// Sizes of a pool over windows, and the channels.
struct Windows<'a> {
    from: &'a [usize],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    ceil_mode: bool,
}

impl Windows<'_> {
    fn geometry(&self, site: &Site<'_>) -> Result<(Pool2dGeometry, usize)> {
        let [batch, channels, height, width] = site.image(self.from)?;
        let geometry = Pool2dGeometry::new(
            batch * channels,
            [height, width],
            self.kernel,
            self.stride,
            self.padding,
            [1, 1],
            self.ceil_mode,
        );
        Ok((
            geometry.map_err(|error| site.kernel_error(error))?,
            channels,
        ))
    }
}

fn max_windows<'a>(op: &MaxPool2d, from: &'a [usize]) -> Windows<'a> {
    Windows {
        from,
        kernel: op.kernel,
        stride: op.stride,
        padding: op.padding,
        ceil_mode: op.ceil_mode,
    }
}

fn average_windows<'a>(op: &AvgPool2d, from: &'a [usize]) -> Windows<'a> {
    Windows {
        from,
        kernel: op.kernel,
        stride: op.stride,
        padding: op.padding,
        ceil_mode: op.ceil_mode,
    }
}

pub(super) fn max(site: &Site<'_>, op: &MaxPool2d) -> Result<Lowered> {
    let (geometry, channels) = max_windows(op, site.shape(0)).geometry(site)?;
    Ok(Lowered::new(move |io| {
        pool::max_pool2d(&geometry, channels, io.floats(0), io.out)
    }))
}

/// From dy and x: the positions of the maxima are found again, which costs less than keeping them.
pub(super) fn max_backward(site: &Site<'_>, op: &MaxPool2d, grad: &Grad) -> Result<Lowered> {
    let (geometry, channels) = max_windows(op, &grad.inputs[0].shape).geometry(site)?;
    Ok(Lowered::new(move |io| {
        let (dy, x) = (io.floats(0), io.floats(1));
        let mut y = io.workspace.take(dy.len());
        let mut positions = io.workspace.take(dy.len());
        pool::max_pool2d_positions(&geometry, channels, x, &mut y, &mut positions)?;
        pool::max_pool2d_backward(&geometry, channels, &positions, dy, io.out)
    }))
}

pub(super) fn average(site: &Site<'_>, op: &AvgPool2d) -> Result<Lowered> {
    let (geometry, channels) = average_windows(op, site.shape(0)).geometry(site)?;
    let padded = op.count_include_pad;
    Ok(Lowered::new(move |io| {
        pool::avg_pool2d(&geometry, channels, padded, io.floats(0), io.out)
    }))
}

pub(super) fn average_backward(site: &Site<'_>, op: &AvgPool2d, grad: &Grad) -> Result<Lowered> {
    let (geometry, channels) = average_windows(op, &grad.inputs[0].shape).geometry(site)?;
    let padded = op.count_include_pad;
    Ok(Lowered::new(move |io| {
        pool::avg_pool2d_backward(&geometry, channels, padded, io.floats(0), io.out)
    }))
}

/// Sizes of an adaptive pool from images of `from` to images of `to`, and the channels.
fn adaptive(
    site: &Site<'_>,
    from: &[usize],
    to: &[usize],
) -> Result<(AdaptivePool2dGeometry, usize)> {
    let [batch, channels, height, width] = site.image(from)?;
    let [.., out_height, out_width] = site.image(to)?;
    let geometry = AdaptivePool2dGeometry {
        planes: batch * channels,
        in_size: [height, width],
        out_size: [out_height, out_width],
    };
    Ok((geometry, channels))
}

pub(super) fn adaptive_average(site: &Site<'_>) -> Result<Lowered> {
    let (geometry, channels) = adaptive(site, site.shape(0), &site.output().shape)?;
    Ok(Lowered::new(move |io| {
        pool::adaptive_avg_pool2d(&geometry, channels, io.floats(0), io.out)
    }))
}

pub(super) fn adaptive_average_backward(site: &Site<'_>, grad: &Grad) -> Result<Lowered> {
    let (geometry, channels) = adaptive(site, &grad.inputs[0].shape, site.shape(0))?;
    Ok(Lowered::new(move |io| {
        pool::adaptive_avg_pool2d_backward(&geometry, channels, io.floats(0), io.out)
    }))
}

pub(super) fn adaptive_max(site: &Site<'_>) -> Result<Lowered> {
    let (geometry, channels) = adaptive(site, site.shape(0), &site.output().shape)?;
    Ok(Lowered::new(move |io| {
        pool::adaptive_max_pool2d(&geometry, channels, io.floats(0), io.out)
    }))
}

/// From dy and x.
pub(super) fn adaptive_max_backward(site: &Site<'_>, grad: &Grad) -> Result<Lowered> {
    let (geometry, channels) = adaptive(site, &grad.inputs[0].shape, site.shape(0))?;
    Ok(Lowered::new(move |io| {
        let (dy, x) = (io.floats(0), io.floats(1));
        let mut y = io.workspace.take(dy.len());
        let mut positions = io.workspace.take(dy.len());
        pool::adaptive_max_pool2d_positions(&geometry, channels, x, &mut y, &mut positions)?;
        pool::adaptive_max_pool2d_backward(&geometry, channels, &positions, dy, io.out)
    }))
}

fn resizing(site: &Site<'_>, op: &Interpolate, from: &[usize]) -> Result<Interpolate2d> {
    let [batch, channels, height, width] = site.image(from)?;
    Ok(Interpolate2d {
        planes: batch * channels,
        in_size: [height, width],
        out_size: op.size,
        mode: match op.mode {
            Interpolation::Nearest => Mode::Nearest,
            Interpolation::Bilinear { align_corners } => Mode::Bilinear { align_corners },
        },
    })
}

pub(super) fn interpolate(site: &Site<'_>, op: &Interpolate) -> Result<Lowered> {
    let geometry = resizing(site, op, site.shape(0))?;
    Ok(Lowered::new(move |io| {
        resize::forward(&geometry, io.floats(0), io.out)
    }))
}

pub(super) fn interpolate_backward(
    site: &Site<'_>,
    op: &Interpolate,
    grad: &Grad,
) -> Result<Lowered> {
    let geometry = resizing(site, op, &grad.inputs[0].shape)?;
    Ok(Lowered::new(move |io| {
        resize::backward(&geometry, io.floats(0), io.out)
    }))
}
