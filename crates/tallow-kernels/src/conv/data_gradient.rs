//! The gradient with respect to the input, as correlations of the output's gradient.
//!
//! Input pixel `q` took part in output `p` through tap `k` where `q + padding = stride * p +
//! dilation * k`. For input pixels of one residue modulo the stride, only some taps can solve
//! that, evenly spaced ones, and `p` moves by one from one such pixel to the next: a correlation
//! of stride 1 with those taps in reverse order. With stride 1 there is one residue and the
//! kernel is simply flipped; with stride `[s, t]` there are `s * t`, each with its own taps.

use super::correlate::{Outputs, Phase};
use super::geometry::Conv2dGeometry;
use super::grid::{Axis, gcd};
use super::pack::WeightView;
use super::window::Correlation;

/// The correlation that gives the input gradient on one residue in one axis.
struct Residue {
    axis: Axis,
    /// The tap of the kernel that stands first, and the taps from one to the next (going down).
    tap: usize,
    tap_step: usize,
}

impl Residue {
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
                geometry.in_size[axis].div_ceil(stride),
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

/// What [`phase`] computes the phases of.
pub(super) fn outputs(geometry: &Conv2dGeometry) -> Outputs {
    Outputs {
        images: geometry.batch,
        groups: geometry.groups,
        rows: geometry.in_channels_per_group(),
        size: geometry.in_size,
        steps: geometry.stride,
        taps: geometry.taps(),
    }
}

/// How the gradient is computed on the input pixels of one residue down and across, or `None`
/// where no output depends on them.
pub(super) fn phase<'a>(
    geometry: &Conv2dGeometry,
    w: &'a [f32],
    dy: &'a [f32],
    residues: [usize; 2],
) -> Option<Phase<'a>> {
    let y = Residue::new(geometry, 0, residues[0])?;
    let x = Residue::new(geometry, 1, residues[1])?;
    Some(Phase {
        reads: Correlation {
            source: dy,
            images: geometry.batch,
            groups: geometry.groups,
            channels: geometry.out_channels_per_group(),
            y: y.axis,
            x: x.axis,
        },
        weights: flipped(geometry, w, &y, &x),
    })
}

/// The weights of the taps that reach a residue: rows are input channels, summed over output
/// channels.
fn flipped<'a>(
    geometry: &Conv2dGeometry,
    w: &'a [f32],
    y: &Residue,
    x: &Residue,
) -> WeightView<'a> {
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
