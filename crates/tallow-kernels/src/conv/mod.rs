//! Two-dimensional convolution on contiguous `[N, C, H, W]` slices: forward, and the gradients
//! with respect to input, weight and bias, for any kernel, stride, padding, dilation and groups.
//!
//! # How it is built
//!
//! Forward and data gradient are both correlations on a grid: planes are read at evenly spaced
//! places, zero outside (`window`; the data gradient of a strided convolution is several of them,
//! see `data_gradient`). `correlate` cuts them into tasks, which one of two algorithms runs:
//! `implicit_gemm` or, for very few outputs a group, `direct`. The weight gradient has one of its own in each spirit
//! (`weight_gradient`, and a part of `direct`). The algorithms share windows (`grid`, `window`), packing
//! (`pack`) and the micro-kernels (`micro`, written in the registers of `crate::registers`).
//!
//! Another algorithm, such as Winograd's for 3x3 kernels, is another file: one that is a way of
//! computing part of a correlation is chosen in `correlate`, one that does all of a convolution
//! itself, or takes data in another order, is chosen in this file by the geometry.
//!
//! # Promises
//!
//! Results don't depend on the number of threads, to the bit: work is cut by shape and SIMD level
//! alone, and every sum has a fixed order. Nothing is allocated apart from what the
//! [`Workspace`] grows by. Threads are those of the calling thread's rayon pool.

mod correlate;
mod data_gradient;
mod direct;
mod geometry;
mod grid;
mod implicit_gemm;
mod micro;
mod pack;
mod weight_gradient;
mod window;

pub use geometry::Conv2dGeometry;

use crate::error::{Result, check_len};
use crate::parallel;
use crate::workspace::Workspace;
use correlate::{Outputs, Phase};
use geometry::Operand;
use grid::Axis;
use pack::WeightView;
use window::Correlation;

/// `y = conv2d(x, w) + bias`, as `torch.nn.functional.conv2d`.
///
/// `x: [N, C, H, W]`, `w: [O, C / groups, kh, kw]`, `bias: [O]`, `y: [N, O, H', W']`, all
/// contiguous.
///
/// # Errors
/// [`Error::Geometry`](crate::Error::Geometry) where the geometry has no output, and
/// [`Error::Length`](crate::Error::Length) where a slice doesn't fit it.
///
/// ```
/// use tallow_kernels::conv::{self, Conv2dGeometry};
/// use tallow_kernels::workspace::Workspace;
///
/// let geometry = Conv2dGeometry::new(1, 1, [3, 3], 1, [2, 2], [1, 1], [0, 0], [1, 1], 1)?;
/// let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
/// let mut y = [0.0; 4];
/// conv::forward(&geometry, &x, &[1.0, 0.0, 0.0, 1.0], None, &mut y, Workspace::global())?;
/// assert_eq!(y, [6.0, 8.0, 12.0, 14.0]);
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
pub fn forward(
    geometry: &Conv2dGeometry,
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    const KERNEL: &str = "conv2d";
    let operands = [
        ("x", x, Operand::Input),
        ("w", w, Operand::Weight),
        ("y", &*y, Operand::Output),
    ];
    geometry.check_operands(KERNEL, &operands)?;
    if let Some(bias) = bias {
        check_len(KERNEL, "bias", bias, geometry.out_channels)?;
    }
    let outputs = Outputs {
        images: geometry.batch,
        groups: geometry.groups,
        rows: geometry.out_channels_per_group(),
        size: geometry.out_size(),
        steps: [1, 1],
        taps: geometry.taps(),
    };
    let phase = |_| {
        Some(Phase {
            reads: input_correlation(geometry, x),
            weights: filters(geometry, w),
        })
    };
    correlate::correlate(&outputs, phase, bias, y, workspace);
    Ok(())
}

/// `dx`, the gradient with respect to the input of [`forward`], from `dy`, that with respect to
/// its output.
///
/// Shapes and errors as for [`forward`]; `dx` is overwritten.
pub fn backward_input(
    geometry: &Conv2dGeometry,
    w: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    let operands = [
        ("w", w, Operand::Weight),
        ("dy", dy, Operand::Output),
        ("dx", &*dx, Operand::Input),
    ];
    geometry.check_operands("conv2d_backward_input", &operands)?;
    let phase = |residues| data_gradient::phase(geometry, w, dy, residues);
    let outputs = data_gradient::outputs(geometry);
    correlate::correlate(&outputs, phase, None, dx, workspace);
    Ok(())
}

/// `dw`, the gradient with respect to the weight of [`forward`], summed over the batch.
///
/// Shapes and errors as for [`forward`]; `dw` is overwritten.
pub fn backward_weight(
    geometry: &Conv2dGeometry,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    workspace: &Workspace,
) -> Result<()> {
    let operands = [
        ("x", x, Operand::Input),
        ("dy", dy, Operand::Output),
        ("dw", &*dw, Operand::Weight),
    ];
    geometry.check_operands("conv2d_backward_weight", &operands)?;
    if geometry.batch == 0 {
        dw.fill(0.0);
        return Ok(());
    }
    let reads = input_correlation(geometry, x);
    let rows = geometry.out_channels_per_group();
    if direct::suits_weight_gradient(rows, geometry.groups) {
        direct::weight_gradient(&reads, rows, dy, dw, workspace);
    } else {
        weight_gradient::weight_gradient(&reads, rows, dy, dw, workspace);
    }
    Ok(())
}

/// `db`, the gradient with respect to the bias of [`forward`]: `dy` summed over batch and pixels.
///
/// Shapes and errors as for [`forward`]; `db` is overwritten.
pub fn backward_bias(geometry: &Conv2dGeometry, dy: &[f32], db: &mut [f32]) -> Result<()> {
    let operands = [("dy", dy, Operand::Output), ("db", &*db, Operand::Bias)];
    geometry.check_operands("conv2d_backward_bias", &operands)?;
    let (plane, channels) = (geometry.out_plane(), geometry.out_channels);
    let grain = parallel::grain(geometry.batch * plane);
    parallel::for_each(channels, grain, db, |first, db| {
        for (channel, db) in (first..).zip(db) {
            let planes = dy.chunks_exact(plane).skip(channel).step_by(channels);
            *db = planes.map(plane_sum).sum::<f64>() as f32;
        }
    });
    Ok(())
}

/// The sum of a plane, in partial sums of which each takes every sixteenth element.
fn plane_sum(plane: &[f32]) -> f64 {
    let (chunks, rest) = plane.as_chunks::<16>();
    let mut sums = [0.0f32; 16];
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    sums.iter().chain(rest).copied().map(f64::from).sum()
}

/// The correlation that the forward direction and the weight gradient read the input by.
fn input_correlation<'a>(geometry: &Conv2dGeometry, x: &'a [f32]) -> Correlation<'a> {
    let out = geometry.out_size();
    let axis = |axis: usize| {
        Axis::new(
            out[axis],
            geometry.in_size[axis],
            geometry.stride[axis],
            -(geometry.padding[axis] as isize),
            geometry.dilation[axis],
            geometry.kernel[axis],
        )
    };
    Correlation {
        source: x,
        images: geometry.batch,
        groups: geometry.groups,
        channels: geometry.in_channels_per_group(),
        y: axis(0),
        x: axis(1),
    }
}

/// The weights as the forward direction uses them: rows are output channels.
fn filters<'a>(geometry: &Conv2dGeometry, w: &'a [f32]) -> WeightView<'a> {
    let taps = geometry.taps();
    let filter = geometry.in_channels_per_group() * taps;
    WeightView {
        values: w,
        origin: 0,
        group_stride: geometry.out_channels_per_group() * filter,
        row_stride: filter,
        channel_stride: taps,
        tap_strides: [geometry.kernel[1] as isize, 1],
        taps: geometry.kernel,
    }
}
