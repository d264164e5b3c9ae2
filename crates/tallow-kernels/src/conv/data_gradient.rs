//! The gradient with respect to the input, as correlations of the output's gradient.
//!
//! Input pixel `q` took part in output `p` through tap `k` where `q + padding = stride * p +
//! dilation * k`. For input pixels of one residue modulo the stride, only some taps can solve
//! that, evenly spaced ones, and `p` moves by one from one such pixel to the next: a correlation
//! of stride 1 with those taps in reverse order. With stride 1 there is one residue and the
//! kernel is simply flipped; with stride `[s, t]` there are `s * t`, each with its own taps.

use super::geometry::Conv2dGeometry;
use super::implicit_gemm::Destination;
use super::pack::WeightView;
use super::region::{Axis, Correlation, gcd};
use crate::shared::SharedMut;

/// The correlation that gives the input gradient on one residue in one axis.
struct Phase {
    axis: Axis,
    /// The tap of the kernel that stands first, and the taps from one to the next (going down).
    tap: usize,
    tap_step: usize,
}

impl Phase {
    /// `None` where no tap reaches the residue.
    fn new(geometry: &Conv2dGeometry, axis: usize, residue: usize) -> Option<Self> {
        let (stride, dilation) = (geometry.stride[axis], geometry.dilation[axis]);
        let taps = geometry.kernel[axis];
        let anchor = residue + geometry.padding[axis];
        let reaches = |tap: &usize| anchor.abs_diff(tap * dilation).is_multiple_of(stride);
        let lowest = (0..taps.min(stride)).find(reaches)?;
        // The others are those whose distance moves by whole strides.
        let tap_step = stride / gcd(stride, dilation);
        let count = (taps - 1 - lowest) / tap_step + 1;
        let tap = lowest + (count - 1) * tap_step;
        Some(Self {
            axis: Axis::new(
                (geometry.in_size[axis] - residue).div_ceil(stride),
                geometry.out_size()[axis],
                1,
                (anchor as isize - (tap * dilation) as isize) / stride as isize,
                tap_step * dilation / stride,
                count,
            ),
            tap,
            tap_step,
        })
    }
}

/// Calls `run` with the correlation, its weights and its destination for each residue, after
/// writing zeros to pixels that no output depends on.
pub(super) fn for_phases(
    geometry: &Conv2dGeometry,
    w: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    mut run: impl FnMut(&Correlation<'_>, &WeightView<'_>, &Destination<'_>),
) {
    let [height, width] = geometry.in_size;
    let plane = geometry.in_plane();
    for residue_y in 0..geometry.stride[0].min(height) {
        let y = Phase::new(geometry, 0, residue_y);
        for residue_x in 0..geometry.stride[1].min(width) {
            let x = Phase::new(geometry, 1, residue_x);
            let (Some(y), Some(x)) = (&y, &x) else {
                clear(geometry, [residue_y, residue_x], dx);
                continue;
            };
            let reads = Correlation {
                source: dy,
                images: geometry.batch,
                groups: geometry.groups,
                channels: geometry.out_channels_per_group(),
                y: y.axis,
                x: x.axis,
            };
            let writes = Destination {
                values: SharedMut::new(dx),
                origin: residue_y * width + residue_x,
                image_stride: geometry.in_channels * plane,
                row_stride: plane,
                strides: [geometry.stride[0] * width, geometry.stride[1]],
            };
            run(&reads, &flipped(geometry, w, y, x), &writes);
        }
    }
}

/// The weights of the taps of a phase: rows are input channels, summed over output channels.
fn flipped<'a>(geometry: &Conv2dGeometry, w: &'a [f32], y: &Phase, x: &Phase) -> WeightView<'a> {
    let width = geometry.kernel[1];
    let filter = geometry.in_channels_per_group() * geometry.taps();
    WeightView {
        values: w,
        origin: y.tap * width + x.tap,
        group_stride: geometry.out_channels_per_group() * filter,
        row_stride: geometry.taps(),
        channel_stride: filter,
        tap_strides: [-((y.tap_step * width) as isize), -(x.tap_step as isize)],
        taps: [y.axis.taps, x.axis.taps],
    }
}

/// Writes zeros to the input pixels of a residue.
fn clear(geometry: &Conv2dGeometry, residue: [usize; 2], dx: &mut [f32]) {
    let [height, width] = geometry.in_size;
    for plane in dx.chunks_exact_mut(height * width) {
        for row in plane
            .chunks_exact_mut(width)
            .skip(residue[0])
            .step_by(geometry.stride[0])
        {
            for value in row.iter_mut().skip(residue[1]).step_by(geometry.stride[1]) {
                *value = 0.0;
            }
        }
    }
}
