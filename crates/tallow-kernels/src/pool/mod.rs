//! Pooling over windows of each plane of `[planes, H, W]`, where the planes are `N C`: maximum and
//! average with PyTorch's padding, `ceil_mode` and ties, and both over adaptive bins.
//!
//! Planes are what threads share out; within one, an output row gathers its windows tap by tap,
//! so that the loops run along rows.

mod adaptive;
mod average;
mod max;

pub use adaptive::{
    AdaptivePool2dGeometry, adaptive_avg_pool2d, adaptive_avg_pool2d_backward, adaptive_max_pool2d,
    adaptive_max_pool2d_backward,
};
pub use average::{avg_pool2d, avg_pool2d_backward};
pub(crate) use average::{check_geometry as check_average_geometry, counted};
pub use max::{max_pool2d, max_pool2d_backward};

use std::ops::Range;

use crate::error::{Error, Result, checked_product};

/// Sizes of a pooling, as in `torch.nn.functional.max_pool2d`; pairs are `[height, width]`.
///
/// Input `[planes, in_size]`, output `[planes, out_size()]`. Each kernel checks the geometry that
/// it is given, so that the fields may be set freely.
///
/// ```
/// use tallow_kernels::pool::Pool2dGeometry;
///
/// let stem = Pool2dGeometry::new(8 * 64, [112, 112], [3, 3], [2, 2], [1, 1], [1, 1], false)?;
/// assert_eq!(stem.out_size(), [56, 56]);
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pool2dGeometry {
    /// Planes, `N C`; 0 is allowed.
    pub planes: usize,
    /// Size of an input plane.
    pub in_size: [usize; 2],
    /// Size of a window.
    pub kernel: [usize; 2],
    /// Input pixels from one window to the next.
    pub stride: [usize; 2],
    /// Rows and columns added on each side, at most half of the kernel.
    pub padding: [usize; 2],
    /// Input pixels from one tap of a window to the next; 1 in average pooling.
    pub dilation: [usize; 2],
    /// Whether a last window that reaches beyond the padding counts, if it begins within the
    /// input or the padding before it.
    pub ceil_mode: bool,
}

const KERNEL: &str = "pool2d";

/// The largest size in pixels: products and signed sums of two of them can't overflow.
const LARGEST: usize = i32::MAX as usize;

impl Pool2dGeometry {
    /// A geometry that has an output.
    ///
    /// # Errors
    /// [`Error::Geometry`] where a size is zero, the padding is more than half of the kernel, or no
    /// window fits.
    pub fn new(
        planes: usize,
        in_size: [usize; 2],
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
    ) -> Result<Self> {
        let geometry = Self {
            planes,
            in_size,
            kernel,
            stride,
            padding,
            dilation,
            ceil_mode,
        };
        geometry.check()?;
        Ok(geometry)
    }

    /// Size of an output plane; 0 along an axis that has no window.
    pub fn out_size(&self) -> [usize; 2] {
        self.axes().map(|axis| axis.output)
    }

    /// Checks all that [`Pool2dGeometry::new`] checks.
    ///
    /// # Errors
    /// As [`Pool2dGeometry::new`].
    pub fn check(&self) -> Result<()> {
        for (axis, name) in self.axes().iter().zip(["height", "width"]) {
            axis.check(name)?;
        }
        checked_product(KERNEL, &[self.planes, self.in_size[0], self.in_size[1]])?;
        let [height, width] = self.out_size();
        checked_product(KERNEL, &[self.planes, height, width])?;
        Ok(())
    }

    /// Elements of an input plane and of an output plane, after [`Self::check`].
    fn plane_lens(&self) -> [usize; 2] {
        [self.in_size, self.out_size()].map(|[height, width]| height * width)
    }

    pub(crate) fn axes(&self) -> [Axis; 2] {
        [0, 1].map(|axis| {
            Axis {
                input: self.in_size[axis],
                output: 0,
                kernel: self.kernel[axis],
                stride: self.stride[axis],
                padding: self.padding[axis],
                dilation: self.dilation[axis],
            }
            .with_output(self.ceil_mode)
        })
    }
}

/// One dimension of a pooling.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    pub(crate) dilation: usize,
}

impl Axis {
    /// Input pixels from a window's first tap to its last, inclusive.
    fn span(&self) -> usize {
        (self.kernel - 1)
            .saturating_mul(self.dilation)
            .saturating_add(1)
    }

    /// Fills in the number of windows, PyTorch's `pooling_output_shape`.
    fn with_output(mut self, ceil_mode: bool) -> Self {
        if self.kernel == 0 || self.stride == 0 {
            return self;
        }
        let (input, padding, stride) = (self.input, self.padding, self.stride);
        let ceil = if ceil_mode { stride - 1 } else { 0 };
        let room = input
            .saturating_add(padding.saturating_mul(2))
            .saturating_add(ceil);
        self.output = match room.checked_sub(self.span()) {
            None => 0,
            Some(room) => {
                let output = room / stride + 1;
                let begins_outside =
                    (output - 1).saturating_mul(stride) >= input.saturating_add(padding);
                output - usize::from(ceil_mode && begins_outside)
            }
        };
        self
    }

    fn check(&self, name: &str) -> Result<()> {
        let problem = |problem: String| {
            Err(Error::Geometry {
                kernel: KERNEL,
                problem,
            })
        };
        let Self {
            input,
            kernel,
            stride,
            padding,
            dilation,
            ..
        } = *self;
        let sizes = [
            ("input", input),
            ("kernel", kernel),
            ("stride", stride),
            ("dilation", dilation),
        ];
        if let Some((what, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return problem(format!("{what} {name} is 0, but has to be at least 1"));
        }
        let sizes = sizes.into_iter().chain([("padding", padding)]);
        if let Some((what, size)) = sizes.into_iter().find(|(_, size)| *size > LARGEST) {
            return problem(format!(
                "{what} {name} is {size}, more than the {LARGEST} allowed"
            ));
        }
        if padding > kernel / 2 {
            return problem(format!(
                "padding {padding} of the {name} is more than half of the kernel's {kernel}"
            ));
        }
        if self.output == 0 {
            return problem(format!(
                "a window that spans {} doesn't fit in the {name} of {input} with padding \
                 {padding}; use a smaller kernel or dilation, or a larger input",
                self.span()
            ));
        }
        // Taps less than the input's size apart can't jump over it.
        if dilation > input && (0..self.output).any(|window| self.taps(window).is_empty()) {
            return problem(format!(
                "a window with dilation {dilation} holds no pixel of the {name} of {input}; use a \
                 smaller dilation"
            ));
        }
        Ok(())
    }

    /// The taps of a window that lie in the input.
    #[inline(always)]
    pub(crate) fn taps(&self, window: usize) -> Range<usize> {
        // Divisions are slow, and hardly any pooling is dilated.
        let steps = |pixels: usize| match self.dilation {
            1 => pixels,
            dilation => pixels.div_ceil(dilation),
        };
        let start = window * self.stride;
        let first = steps(self.padding.saturating_sub(start));
        let last = steps((self.input + self.padding).saturating_sub(start));
        first.min(self.kernel)..last.min(self.kernel)
    }

    /// The pixel of a tap of a window; the tap has to be one of [`Self::taps`].
    #[inline(always)]
    pub(crate) fn pixel(&self, window: usize, tap: usize) -> usize {
        window * self.stride + tap * self.dilation - self.padding
    }

    /// The windows that lie wholly in the input.
    fn interior(&self) -> Range<usize> {
        let first = self.padding.div_ceil(self.stride).min(self.output);
        let end = match (self.input + self.padding).checked_sub(self.span()) {
            None => 0,
            Some(last) => last / self.stride + 1,
        };
        first..end.clamp(first, self.output)
    }

    /// Where the windows that lie wholly in the input read it: each of the taps of these windows
    /// as runs of `STRIDE` pixels, of which the first is the tap's. `x` is a plane from an input
    /// row on; as many windows are given as have runs within the plane.
    #[inline(always)]
    fn interior_taps<'a, const STRIDE: usize, const TAPS: usize>(
        &self,
        x: &'a [f32],
    ) -> (Range<usize>, [&'a [[f32; STRIDE]]; TAPS]) {
        let Range { start, end } = self.interior();
        if start == end {
            return (start..start, [&[]; TAPS]);
        }
        let x = &x[start * STRIDE - self.padding..];
        let count = (end - start).min((x.len() + 1 - TAPS) / STRIDE);
        let taps = std::array::from_fn(|tap| &x[tap..].as_chunks::<STRIDE>().0[..count]);
        (start..start + count, taps)
    }
}
