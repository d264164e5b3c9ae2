//! Pooling over `[N, C, H, W]`: maximum and mean, over sliding or adaptive windows.

use serde::{Deserialize, Serialize};

use super::check::{self, Window};
use super::rule::{Attributes, Problem, Rule, Signature};
use crate::TensorType;

/// PyTorch's `max_pool2d`. Padding counts as minus infinity; of equal maxima the first gets the gradient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxPool2d {
    /// Window size, `[vertical, horizontal]`.
    pub kernel: [usize; 2],
    /// Step of the window.
    pub stride: [usize; 2],
    /// Padding on each side, at most half the kernel.
    pub padding: [usize; 2],
    /// Whether a last window that overhangs the end counts.
    pub ceil_mode: bool,
}

/// PyTorch's `avg_pool2d`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AvgPool2d {
    /// Window size, `[vertical, horizontal]`.
    pub kernel: [usize; 2],
    /// Step of the window.
    pub stride: [usize; 2],
    /// Zeros on each side, at most half the kernel.
    pub padding: [usize; 2],
    /// Whether a last window that overhangs the end counts.
    pub ceil_mode: bool,
    /// Whether padding counts in the divisor, PyTorch's default.
    pub count_include_pad: bool,
}

/// PyTorch's `adaptive_avg_pool2d`: output position `i` of `out` is the mean of inputs
/// `⌊i·in/out⌋ .. ⌈(i+1)·in/out⌉`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptiveAvgPool2d {
    /// Output size, `[height, width]`.
    pub out: [usize; 2],
}

/// PyTorch's `adaptive_max_pool2d`, over the windows of [`AdaptiveAvgPool2d`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptiveMaxPool2d {
    /// Output size, `[height, width]`.
    pub out: [usize; 2],
}

/// The window that maximum and mean pooling share.
struct Sliding {
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    ceil_mode: bool,
}

impl Sliding {
    fn infer(&self, x: &TensorType) -> Result<TensorType, Problem> {
        check::float("x", x)?;
        let [batch, channels, height, width] = check::nchw("x", x)?;
        check::positive("kernel", &self.kernel)?;
        check::positive("stride", &self.stride)?;
        for (padding, kernel) in self.padding.iter().zip(self.kernel) {
            if *padding > kernel / 2 {
                return Err(Problem::new(
                    format!("padding {padding} is more than half the kernel {kernel}"),
                    "a window could lie in padding alone; use at most half the kernel",
                ));
            }
        }
        let window = |axis: usize| Window {
            kernel: self.kernel[axis],
            stride: self.stride[axis],
            padding: self.padding[axis],
            dilation: 1,
        };
        let rows = check::window_steps("height", height, &window(0), self.ceil_mode)?;
        let columns = check::window_steps("width", width, &window(1), self.ceil_mode)?;
        Ok(TensorType::new(x.dtype, [batch, channels, rows, columns]))
    }

    fn flops(&self, output: &TensorType) -> u64 {
        output.elements().saturating_mul(check::count(&self.kernel))
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("kernel", self.kernel);
        list.show("stride", self.stride);
        list.show_unless("padding", self.padding, [0, 0]);
        list.show_unless("ceil_mode", self.ceil_mode, false);
    }
}

impl MaxPool2d {
    fn sliding(&self) -> Sliding {
        Sliding {
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            ceil_mode: self.ceil_mode,
        }
    }
}

impl AvgPool2d {
    fn sliding(&self) -> Sliding {
        Sliding {
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            ceil_mode: self.ceil_mode,
        }
    }
}

impl Rule for MaxPool2d {
    fn name(&self) -> &'static str {
        "max_pool2d"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        self.sliding().infer(&inputs[0])
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        self.sliding().flops(output)
    }

    fn attributes(&self, list: &mut Attributes) {
        self.sliding().attributes(list);
    }
}

impl Rule for AvgPool2d {
    fn name(&self) -> &'static str {
        "avg_pool2d"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        self.sliding().infer(&inputs[0])
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        self.sliding().flops(output)
    }

    fn attributes(&self, list: &mut Attributes) {
        self.sliding().attributes(list);
        list.show_unless("count_include_pad", self.count_include_pad, true);
    }
}

fn adaptive(x: &TensorType, out: [usize; 2]) -> Result<TensorType, Problem> {
    check::float("x", x)?;
    let [batch, channels, ..] = check::nchw("x", x)?;
    check::positive("output size", &out)?;
    Ok(TensorType::new(x.dtype, [batch, channels, out[0], out[1]]))
}

impl Rule for AdaptiveAvgPool2d {
    fn name(&self) -> &'static str {
        "adaptive_avg_pool2d"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        adaptive(&inputs[0], self.out)
    }

    fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        check::first_elements(inputs).saturating_add(output.elements())
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("out", self.out);
    }
}

impl Rule for AdaptiveMaxPool2d {
    fn name(&self) -> &'static str {
        "adaptive_max_pool2d"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        adaptive(&inputs[0], self.out)
    }

    fn flops(&self, inputs: &[TensorType], _output: &TensorType) -> u64 {
        check::first_elements(inputs)
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("out", self.out);
    }
}
