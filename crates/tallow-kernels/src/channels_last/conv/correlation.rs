//! Forward and data gradient seen alike: sums over the taps that read a source at evenly spaced pixels.
//!
//! Forward is one correlation. The data gradient is one for each residue of the input pixel modulo the stride, down and
//! across: input pixel `q` took part in output `p` through tap `k` where `q + padding = stride * p + dilation * k`. For
//! pixels of one residue only some taps can solve that, evenly spaced ones, and `p` moves by one from one such pixel to
//! the next. So every pixel of the gradient is written once, and no zeros are multiplied that the stride puts between
//! the rows of `dy`.

use std::ops::Range;

use super::Direction;
use crate::conv::Conv2dGeometry;

/// One axis of a correlation: tap `t` of position `p` reads source pixel `stride * p + first + step * t`, if there is
/// such a pixel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    /// Positions that are computed.
    pub(super) grid: usize,
    /// Pixel of the target that position 0 is stored to, and pixels from one position to the next.
    pub(super) target_first: usize,
    pub(super) target_step: usize,
    /// Pixels of the source.
    pub(super) source: usize,
    pub(super) stride: usize,
    pub(super) first: isize,
    pub(super) step: usize,
    pub(super) taps: usize,
    /// Of the data gradient: tap `t` is the kernel's tap `kernel_last - t * kernel_step`.
    kernel_last: usize,
    kernel_step: usize,
}

impl Axis {
    /// The source pixel that a tap of a position reads, or `None` for padding.
    #[inline(always)]
    pub(super) fn read(&self, position: usize, tap: usize) -> Option<usize> {
        let at = (position * self.stride + tap * self.step) as isize + self.first;
        (0..self.source as isize)
            .contains(&at)
            .then_some(at as usize)
    }

    /// The positions, of endlessly many, under which a tap doesn't read padding.
    pub(super) fn live(&self, tap: usize) -> Range<usize> {
        // A position reads pixel `position * stride - before`.
        let before = -(self.first + (tap * self.step) as isize);
        let from = |pixel: isize| pixel.max(0).unsigned_abs().div_ceil(self.stride);
        from(before)..from(before + self.source as isize)
    }

    fn forward(geometry: &Conv2dGeometry, axis: usize) -> Self {
        Self {
            grid: geometry.out_size()[axis],
            target_first: 0,
            target_step: 1,
            source: geometry.in_size[axis],
            stride: geometry.stride[axis],
            first: -(geometry.padding[axis] as isize),
            step: geometry.dilation[axis],
            taps: geometry.kernel[axis],
            kernel_last: 0,
            kernel_step: 1,
        }
    }

    /// The data gradient on the input pixels of one residue modulo the stride.
    fn backward(geometry: &Conv2dGeometry, axis: usize, residue: usize) -> Self {
        let (stride, dilation) = (geometry.stride[axis], geometry.dilation[axis]);
        let kernel = geometry.kernel[axis];
        let anchor = residue + geometry.padding[axis];
        let reaches = |tap: &usize| anchor.abs_diff(tap * dilation).is_multiple_of(stride);
        // Taps that reach the residue lie whole strides apart; they are read from the last to the first.
        let tap_step = stride / gcd(stride, dilation);
        let lowest = (0..kernel.min(stride)).find(reaches);
        let taps = lowest.map_or(0, |lowest| (kernel - 1 - lowest) / tap_step + 1);
        let last = lowest.unwrap_or(0) + taps.saturating_sub(1) * tap_step;
        Self {
            grid: (geometry.in_size[axis] - residue).div_ceil(stride),
            target_first: residue,
            target_step: stride,
            source: geometry.out_size()[axis],
            stride: 1,
            first: (anchor as isize - (last * dilation) as isize) / stride as isize,
            step: tap_step * dilation / stride,
            taps,
            kernel_last: last,
            kernel_step: tap_step,
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// One correlation, and where its packed weights start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Correlation {
    /// Down and across.
    pub(super) axes: [Axis; 2],
    /// Taps of the correlations before this one.
    pub(super) taps_before: usize,
}

impl Correlation {
    pub(super) fn taps(&self) -> usize {
        self.axes[0].taps * self.axes[1].taps
    }

    /// Positions of an image.
    pub(super) fn grid(&self) -> usize {
        self.axes[0].grid * self.axes[1].grid
    }
}

/// Where a tap of the kernel stands among those of all correlations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Taps of the correlations before its own, and of its own.
    pub(super) before: usize,
    pub(super) taps: usize,
    /// Its number in its own.
    pub(super) tap: usize,
}

/// All correlations of a direction of a convolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Correlations {
    geometry: Conv2dGeometry,
    pub(super) direction: Direction,
    pub(super) images: usize,
    pub(super) groups: usize,
    /// Channels of a group that are summed over, at each tap.
    pub(super) depth: usize,
    /// Channels of a group that come out.
    pub(super) columns: usize,
    /// Height and width of what comes out.
    pub(super) target_size: [usize; 2],
    /// Taps of a kernel's row that [`Correlations::merge_row`] made one.
    pub(super) merged: usize,
}

impl Correlations {
    pub(super) fn new(geometry: &Conv2dGeometry, direction: Direction) -> Self {
        let groups = geometry.groups;
        let (depth, columns, target_size) = match direction {
            Direction::Forward => (
                geometry.in_channels,
                geometry.out_channels,
                geometry.out_size(),
            ),
            Direction::BackwardInput => (
                geometry.out_channels,
                geometry.in_channels,
                geometry.in_size,
            ),
        };
        Self {
            geometry: *geometry,
            direction,
            images: geometry.batch,
            groups,
            depth: depth / groups,
            columns: columns / groups,
            target_size,
            merged: 1,
        }
    }

    /// The forward direction on rows that are padded, where the taps of a kernel's row are one run of the source.
    ///
    /// Packed weights keep their order.
    pub(super) fn merge_row(mut self) -> Self {
        self.merged = self.geometry.kernel[1];
        self.depth *= self.merged;
        self
    }

    /// How many there are. Residues that no pixel of a small image has count for none.
    pub(super) fn count(&self) -> usize {
        self.residues(0) * self.residues(1)
    }

    fn residues(&self, axis: usize) -> usize {
        match self.direction {
            Direction::Forward => 1,
            Direction::BackwardInput => self.geometry.stride[axis].min(self.geometry.in_size[axis]),
        }
    }

    /// Correlation `index` of [`Correlations::count`]. The first has the most positions.
    pub(super) fn get(&self, index: usize) -> Correlation {
        if self.direction == Direction::Forward {
            return self.forward();
        }
        let axis = |axis, residue| Axis::backward(&self.geometry, axis, residue);
        let width = self.residues(1);
        let (y, x) = (index / width, index % width);
        let taps = |number, end: usize| {
            (0..end)
                .map(|residue| axis(number, residue).taps)
                .sum::<usize>()
        };
        let axes = [axis(0, y), axis(1, x)];
        Correlation {
            axes,
            taps_before: taps(0, y) * taps(1, width) + axes[0].taps * taps(1, x),
        }
    }

    /// How many products of an image's pixels, for a channel and a column, read a pixel; and how many there are with
    /// those that read padding.
    pub(super) fn products(&self) -> (usize, usize) {
        let axis = |axis: usize| {
            let axes = (0..self.residues(axis)).map(|residue| match self.direction {
                Direction::Forward => Axis::forward(&self.geometry, axis),
                Direction::BackwardInput => Axis::backward(&self.geometry, axis, residue),
            });
            axes.fold((0, 0), |(live, all), axis| {
                let reads = (0..axis.grid)
                    .flat_map(|position| (0..axis.taps).map(move |tap| axis.read(position, tap)));
                (live + reads.flatten().count(), all + axis.grid * axis.taps)
            })
        };
        let (down, across) = (axis(0), axis(1));
        (
            down.0.saturating_mul(across.0),
            down.1.saturating_mul(across.1),
        )
    }

    fn forward(&self) -> Correlation {
        let [down, mut across] = [0, 1].map(|axis| Axis::forward(&self.geometry, axis));
        if self.merged > 1 {
            across.source += 2 * self.geometry.padding[1];
            across.first = 0;
            across.taps = 1;
        }
        Correlation {
            axes: [down, across],
            taps_before: 0,
        }
    }

    /// Where a tap of the kernel is used, if it is.
    pub(super) fn place(&self, tap: usize) -> Option<Place> {
        let [height, width] = self.geometry.kernel;
        if self.direction == Direction::Forward {
            return Some(Place {
                before: 0,
                taps: height * width,
                tap,
            });
        }
        let index = [tap / width, tap % width];
        let residues = [0, 1].map(|axis| {
            let (stride, padding) = (self.geometry.stride[axis], self.geometry.padding[axis]);
            let reach = (index[axis] * self.geometry.dilation[axis]) as isize - padding as isize;
            reach.rem_euclid(stride as isize) as usize
        });
        if residues[0] >= self.residues(0) || residues[1] >= self.residues(1) {
            return None;
        }
        let correlation = self.get(residues[0] * self.residues(1) + residues[1]);
        let [y, x] = [0, 1].map(|axis| {
            let Axis {
                kernel_last,
                kernel_step,
                ..
            } = correlation.axes[axis];
            (kernel_last - index[axis]) / kernel_step
        });
        Some(Place {
            before: correlation.taps_before,
            taps: correlation.taps(),
            tap: y * correlation.axes[1].taps + x,
        })
    }

    /// Floats of packed weights, in panels of `panel` columns.
    pub(super) fn packed_len(&self, panel: usize) -> usize {
        let [height, width] = self.geometry.kernel;
        self.groups * self.columns.div_ceil(panel) * panel * self.depth / self.merged
            * height
            * width
    }

    /// The weights' order: floats from one column, and from one channel, to the next; those of a group; the kernel's
    /// size.
    pub(super) fn weight_strides(&self) -> WeightStrides {
        let [height, width] = self.geometry.kernel;
        let taps = height * width;
        let filter = self.geometry.in_channels / self.groups * taps;
        let (column, channel) = match self.direction {
            Direction::Forward => (filter, taps),
            Direction::BackwardInput => (taps, filter),
        };
        WeightStrides {
            column,
            channel,
            group: self.geometry.out_channels / self.groups * filter,
            taps,
        }
    }
}

/// Floats from one thing to the next in `[O, C / groups, kh, kw]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct WeightStrides {
    /// Channels that come out.
    pub(super) column: usize,
    /// Channels that are summed over.
    pub(super) channel: usize,
    pub(super) group: usize,
    /// Taps of the kernel, which are neighbours.
    pub(super) taps: usize,
}
