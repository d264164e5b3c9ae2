//! Windows along the two axes of an image: those of a pooling, or the bins of an adaptive one.

use std::ops::Range;

use crate::error::{Error, Result, check_len};
use crate::parallel::LEAF;
use crate::pool::{self, AdaptivePool2dGeometry, Pool2dGeometry};

/// Windows along one axis.
#[derive(Debug, Clone, Copy)]
pub(super) enum Axis {
    /// Evenly spaced.
    Windows(pool::Axis),
    /// Bin `i` goes from `floor(i input / output)` to `ceil((i + 1) input / output)`.
    Bins { input: usize, output: usize },
}

impl Axis {
    fn input(&self) -> usize {
        match *self {
            Self::Windows(axis) => axis.input,
            Self::Bins { input, .. } => input,
        }
    }

    fn output(&self) -> usize {
        match *self {
            Self::Windows(axis) => axis.output,
            Self::Bins { output, .. } => output,
        }
    }

    /// A bound for the taps of a window.
    fn kernel(&self) -> usize {
        match *self {
            Self::Windows(axis) => axis.kernel,
            // A bin that begins and ends within a pixel holds both.
            Self::Bins { input, output } => (input.div_ceil(output) + 1).min(input),
        }
    }

    /// The taps of a window that lie in the input.
    #[inline(always)]
    pub(super) fn taps(&self, window: usize) -> Range<usize> {
        match *self {
            Self::Windows(axis) => axis.taps(window),
            Self::Bins { input, output } => {
                0..((window + 1) * input).div_ceil(output) - window * input / output
            }
        }
    }

    /// The pixel of one of [`Self::taps`].
    #[inline(always)]
    pub(super) fn pixel(&self, window: usize, tap: usize) -> usize {
        match *self {
            Self::Windows(axis) => axis.pixel(window, tap),
            Self::Bins { input, output } => window * input / output + tap,
        }
    }

    /// Windows that may have a tap at a pixel.
    #[inline(always)]
    pub(super) fn windows(&self, pixel: usize) -> Range<usize> {
        match *self {
            Self::Windows(axis) => {
                let span = (axis.kernel - 1) * axis.dilation;
                let padded = pixel + axis.padding;
                let first = padded.saturating_sub(span).div_ceil(axis.stride);
                let end = (padded / axis.stride + 1).min(axis.output);
                first.min(end)..end
            }
            Self::Bins { input, output } => {
                pixel * output / input..((pixel + 1) * output).div_ceil(input)
            }
        }
    }

    /// Which tap of a window lies at a pixel, if one does. The window must be one of [`Self::windows`].
    #[inline(always)]
    pub(super) fn tap(&self, window: usize, pixel: usize) -> Option<usize> {
        match *self {
            Self::Windows(axis) => {
                let distance = pixel + axis.padding - window * axis.stride;
                match axis.dilation {
                    1 => Some(distance),
                    dilation => distance
                        .is_multiple_of(dilation)
                        .then_some(distance / dilation),
                }
            }
            Self::Bins { input, output } => Some(pixel - window * input / output),
        }
    }
}

/// A batch of images of `channels`, and the windows on them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) batch: usize,
    pub(super) channels: usize,
    /// Down and across.
    pub(super) axes: [Axis; 2],
    /// Height and width of the input.
    pub(super) in_size: [usize; 2],
    /// Height and width of the output.
    pub(super) out_size: [usize; 2],
    /// Most taps of a window, down and across.
    pub(super) kernel: [usize; 2],
}

impl Windows {
    pub(super) fn of(
        kernel: &'static str,
        geometry: &Pool2dGeometry,
        channels: usize,
    ) -> Result<Self> {
        geometry.check()?;
        let axes = geometry.axes().map(Axis::Windows);
        Self::new(kernel, geometry.planes, channels, axes)
    }

    pub(super) fn of_bins(
        kernel: &'static str,
        geometry: &AdaptivePool2dGeometry,
        channels: usize,
    ) -> Result<Self> {
        geometry.check(kernel)?;
        let axes = [0, 1].map(|axis| Axis::Bins {
            input: geometry.in_size[axis],
            output: geometry.out_size[axis],
        });
        Self::new(kernel, geometry.planes, channels, axes)
    }

    fn new(kernel: &'static str, planes: usize, channels: usize, axes: [Axis; 2]) -> Result<Self> {
        if channels == 0 || !planes.is_multiple_of(channels) {
            let problem = format!(
                "{planes} planes can't be images of {channels} channels; pass the number of \
                 channels that the planes were counted with"
            );
            return Err(Error::Geometry { kernel, problem });
        }
        Ok(Self {
            batch: planes / channels,
            channels,
            axes,
            in_size: axes.map(|axis| axis.input()),
            out_size: axes.map(|axis| axis.output()),
            kernel: axes.map(|axis| axis.kernel()),
        })
    }

    fn in_len(&self) -> usize {
        self.batch * self.channels * self.in_size.iter().product::<usize>()
    }

    fn out_len(&self) -> usize {
        self.batch * self.channels * self.out_size.iter().product::<usize>()
    }

    pub(super) fn check_input<T>(
        &self,
        kernel: &'static str,
        operand: &'static str,
        slice: &[T],
    ) -> Result<()> {
        check_len(kernel, operand, slice, self.in_len())
    }

    pub(super) fn check_output<T>(
        &self,
        kernel: &'static str,
        operand: &'static str,
        slice: &[T],
    ) -> Result<()> {
        check_len(kernel, operand, slice, self.out_len())
    }

    /// How many of `rows` rows of all images a leaf takes.
    pub(super) fn grain(&self, rows: usize) -> usize {
        let elements = self.in_len() + self.out_len();
        (LEAF / (elements / rows.max(1)).max(1)).max(1)
    }
}
