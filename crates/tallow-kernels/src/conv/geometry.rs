//! Sizes of a two-dimensional convolution and the checks that every kernel starts with.

use crate::error::{Error, Result, check_len, checked_product};

/// Shapes and parameters of a convolution, as in `torch.nn.functional.conv2d`.
///
/// Input `[batch, in_channels, in_size]`, weight `[out_channels, in_channels / groups, kernel]`,
/// output `[batch, out_channels, out_size()]`; pairs are `[height, width]`. Padding is with zeros
/// on both sides. Each kernel checks the geometry that it is given, so that the fields may be set
/// freely.
///
/// ```
/// use tallow_kernels::conv::Conv2dGeometry;
///
/// let stem = Conv2dGeometry::new(8, 3, [224, 224], 64, [7, 7], [2, 2], [3, 3], [1, 1], 1)?;
/// assert_eq!(stem.out_size(), [112, 112]);
/// # Ok::<(), tallow_kernels::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conv2dGeometry {
    /// Images in the batch; 0 is allowed.
    pub batch: usize,
    /// Channels of the input.
    pub in_channels: usize,
    /// Height and width of the input.
    pub in_size: [usize; 2],
    /// Channels of the output.
    pub out_channels: usize,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Input pixels from one output pixel to the next, down and across.
    pub stride: [usize; 2],
    /// Rows and columns of zeros added on each side.
    pub padding: [usize; 2],
    /// Input pixels from one tap of the kernel to the next; 1 for a dense kernel.
    pub dilation: [usize; 2],
    /// Groups that the channels fall into; each sees the input channels of its own group only.
    pub groups: usize,
}

const KERNEL: &str = "conv2d";

/// The largest size in pixels: products and signed sums of two of them can't overflow.
const LARGEST: usize = i32::MAX as usize;

impl Conv2dGeometry {
    /// A geometry that has an output.
    ///
    /// # Errors
    /// [`Error::Geometry`] where a size is zero, the channels can't be divided among the groups,
    /// or the kernel is larger than the padded input.
    pub fn new(
        batch: usize,
        in_channels: usize,
        in_size: [usize; 2],
        out_channels: usize,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        groups: usize,
    ) -> Result<Self> {
        let geometry = Self {
            batch,
            in_channels,
            in_size,
            out_channels,
            kernel,
            stride,
            padding,
            dilation,
            groups,
        };
        geometry.check()?;
        Ok(geometry)
    }

    /// Height and width of the output, `(in + 2 padding - dilation (kernel - 1) - 1) / stride + 1`
    /// rounded down; 0 in a dimension that has none.
    pub fn out_size(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.out_extent(axis).unwrap_or(0))
    }

    /// Checks all that [`Conv2dGeometry::new`] checks.
    ///
    /// # Errors
    /// As [`Conv2dGeometry::new`].
    pub fn check(&self) -> Result<()> {
        self.check_parameters()?;
        for (axis, name) in ["height", "width"].into_iter().enumerate() {
            if self.out_extent(axis).is_none() {
                return Err(self.no_output(axis, name));
            }
        }
        // The sizes of all operands fit in a `usize`, so nothing below has to check again.
        let [height, width] = self.out_size();
        checked_product(
            KERNEL,
            &[
                self.batch,
                self.in_channels,
                self.in_size[0],
                self.in_size[1],
            ],
        )?;
        checked_product(KERNEL, &[self.batch, self.out_channels, height, width])?;
        checked_product(
            KERNEL,
            &[
                self.out_channels,
                self.in_channels,
                self.kernel[0],
                self.kernel[1],
            ],
        )?;
        Ok(())
    }

    fn check_parameters(&self) -> Result<()> {
        let counts = [
            ("in_channels", self.in_channels),
            ("out_channels", self.out_channels),
            ("groups", self.groups),
        ];
        let pixels = [
            ("kernel height", self.kernel[0]),
            ("kernel width", self.kernel[1]),
            ("vertical stride", self.stride[0]),
            ("horizontal stride", self.stride[1]),
            ("vertical dilation", self.dilation[0]),
            ("horizontal dilation", self.dilation[1]),
        ];
        let input = [
            ("input height", self.in_size[0]),
            ("input width", self.in_size[1]),
        ];
        let mut positive = counts.iter().chain(&pixels).chain(&input);
        if let Some((name, _)) = positive.find(|(_, size)| *size == 0) {
            return Err(geometry_error(format!(
                "{name} is 0, but has to be at least 1"
            )));
        }
        for (name, channels) in &counts[..2] {
            if channels % self.groups != 0 {
                return Err(geometry_error(format!(
                    "{name} is {channels}, which {} groups don't divide evenly; choose a number \
                     of groups that divides it",
                    self.groups
                )));
            }
        }
        let padding = [
            ("vertical padding", self.padding[0]),
            ("horizontal padding", self.padding[1]),
        ];
        let mut sizes = pixels.iter().chain(&input).chain(&padding);
        match sizes.find(|(_, size)| *size > LARGEST) {
            Some((name, size)) => Err(geometry_error(format!(
                "{name} is {size}, but can be at most {LARGEST}"
            ))),
            None => Ok(()),
        }
    }

    fn no_output(&self, axis: usize, name: &str) -> Error {
        geometry_error(format!(
            "no output: a kernel of {name} {} with dilation {} doesn't fit into an input of {name} \
             {} with padding {}; pad more, or use a smaller kernel",
            self.kernel[axis], self.dilation[axis], self.in_size[axis], self.padding[axis],
        ))
    }

    fn out_extent(&self, axis: usize) -> Option<usize> {
        let reach = self.dilation[axis].checked_mul(self.kernel[axis].checked_sub(1)?)?;
        let padded = self.padding[axis]
            .checked_mul(2)?
            .checked_add(self.in_size[axis])?;
        let room = padded.checked_sub(reach)?.checked_sub(1)?;
        Some(room.checked_div(self.stride[axis])? + 1)
    }

    /// Input channels that an output channel sees.
    pub(super) fn in_channels_per_group(&self) -> usize {
        self.in_channels / self.groups
    }

    /// Output channels of a group.
    pub(super) fn out_channels_per_group(&self) -> usize {
        self.out_channels / self.groups
    }

    /// Elements of an input plane.
    pub(super) fn in_plane(&self) -> usize {
        self.in_size[0] * self.in_size[1]
    }

    /// Elements of an output plane.
    pub(super) fn out_plane(&self) -> usize {
        let [height, width] = self.out_size();
        height * width
    }

    /// Taps of the kernel.
    pub(super) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Checks the geometry and that the operands have the lengths it asks for.
    pub(super) fn check_operands(
        &self,
        kernel: &'static str,
        operands: &[(&'static str, &[f32], Operand)],
    ) -> Result<()> {
        self.check()?;
        for (name, values, operand) in operands {
            check_len(kernel, name, values, self.len(*operand))?;
        }
        Ok(())
    }

    fn len(&self, operand: Operand) -> usize {
        match operand {
            Operand::Input => self.batch * self.in_channels * self.in_plane(),
            Operand::Weight => self.out_channels * self.in_channels_per_group() * self.taps(),
            Operand::Output => self.batch * self.out_channels * self.out_plane(),
            Operand::Bias => self.out_channels,
        }
    }
}

/// The tensors of a convolution, and their gradients.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operand {
    Input,
    Weight,
    Output,
    Bias,
}

fn geometry_error(problem: String) -> Error {
    Error::Geometry {
        kernel: KERNEL,
        problem,
    }
}
