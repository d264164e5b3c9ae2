//! Each operation of the graph as one operator or a few.

use tallow_graph::op::{
    AvgPool2d, Conv2d, Gelu, GroupNorm, Interpolate, Interpolation, LayerNorm, MaxPool2d, Slice,
};
use tallow_graph::{DType, Node, Op};

use super::proto::element;
use super::{Writer, float, int, ints, string};
use crate::Result;
use crate::onnx::refused;

impl Writer<'_> {
    /// Writes an operation; gives the name of its value.
    pub(super) fn operation(&mut self, node: &Node, inputs: &[String]) -> Result<String> {
        let i: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let x = i.first().copied().unwrap_or_default();
        let none = Vec::new;
        Ok(match &node.op {
            Op::Conv2d(op) => match self.rounded_bias(node) {
                Some(bias) => self.convolution(op, &[i[0], i[1], &bias]),
                None => self.convolution(op, &i),
            },
            Op::Linear => self.linear(node, &i),
            Op::MatMul => self.emit("MatMul", &i, none()),
            Op::Embedding => self.embedding(node, i[0], i[1]),
            Op::Attention(op) => self.attention(op.scale, [i[0], i[1], i[2]]),
            Op::Add => self.emit("Add", &i, none()),
            Op::Sub => self.emit("Sub", &i, none()),
            Op::Mul => self.emit("Mul", &i, none()),
            Op::Div => self.emit("Div", &i, none()),
            Op::AddScalar(op) => self.with_scalar("Add", x, op.value),
            Op::MulScalar(op) => self.with_scalar("Mul", x, op.value),
            Op::Relu => self.emit("Relu", &i, none()),
            Op::Relu6 => {
                let (low, high) = (self.scalar(0.0), self.scalar(6.0));
                self.emit("Clip", &[x, &low, &high], none())
            }
            Op::Gelu(Gelu { approximate }) => {
                let approximate = if *approximate { "tanh" } else { "none" };
                self.emit("Gelu", &i, vec![string("approximate", approximate)])
            }
            Op::Silu => {
                let gate = self.emit("Sigmoid", &i, none());
                self.emit("Mul", &[x, &gate], none())
            }
            Op::Sigmoid => self.emit("Sigmoid", &i, none()),
            Op::Tanh => self.emit("Tanh", &i, none()),
            Op::Hardswish => self.emit("HardSwish", &i, none()),
            Op::BatchNorm(op) => {
                self.emit("BatchNormalization", &i, vec![float("epsilon", op.eps)])
            }
            Op::LayerNorm(op) => self.layer_norm(node, op, &i),
            Op::GroupNorm(op) => self.group_norm(node, op, &i),
            Op::MaxPool2d(op) => self.max_pool(node, op, x),
            Op::AvgPool2d(op) => self.average_pool(node, op, x)?,
            Op::AdaptiveAvgPool2d(op) => self.adaptive_average(op, x, self.size(node)),
            Op::AdaptiveMaxPool2d(op) => self.adaptive_max(op, x, self.size(node)),
            Op::Interpolate(op) => self.interpolate(node, op, x),
            Op::Softmax(op) => self.emit("Softmax", &i, vec![int("axis", op.dim as i64)]),
            Op::LogSoftmax(op) => self.emit("LogSoftmax", &i, vec![int("axis", op.dim as i64)]),
            Op::Concat(op) => self.emit("Concat", &i, vec![int("axis", op.dim as i64)]),
            Op::Reshape(op) => self.reshape(x, &op.shape),
            Op::Permute(op) => self.emit("Transpose", &i, vec![ints("perm", &op.dims)]),
            Op::Slice(op) => self.slice(op, x),
            Op::Expand(op) => {
                let shape = self.ints(&op.shape);
                self.emit("Expand", &[x, &shape], none())
            }
            Op::FakeQuantize(op) => self.fake_quantize(node, op, x)?,
            Op::Mean(op) => self.reduce("ReduceMean", x, &op.dims, op.keep_dim),
            Op::Sum(op) => self.reduce("ReduceSum", x, &op.dims, op.keep_dim),
            Op::Input(_)
            | Op::Param(_)
            | Op::Constant(_)
            | Op::CrossEntropy(_)
            | Op::Dropout(_)
            | Op::DropPath(_)
            | Op::RoundBf16
            | Op::Opaque(_)
            | Op::Grad(_)
            | Op::BatchStats(_)
            | Op::Normalize(_)
            | Op::NormalizeSums(_)
            | Op::NormalizeBackward(_)
            | Op::RunningStat(_)
            | Op::FoldBatchNorm(_)
            | Op::FusedConv2d(_)
            | Op::Pointwise(_)
            | Op::QuantizeToWords(_)
            | Op::Int8Conv2d(_)
            | Op::Relayout(_) => {
                let problem = "is no operation of inference";
                return Err(refused(
                    node.op.name(),
                    &node.scope,
                    problem,
                    "freeze the model",
                ));
            }
        })
    }

    /// The shape of input `index` of a node.
    fn shape(&self, node: &Node, index: usize) -> Vec<usize> {
        let id = node.inputs.get(index);
        let input = id.and_then(|id| self.graph.node(*id));
        input.map_or_else(Vec::new, |input| input.output.shape.clone())
    }

    /// Height and width of a node's input.
    fn size(&self, node: &Node) -> [usize; 2] {
        match self.shape(node, 0).as_slice() {
            [_, _, height, width] => [*height, *width],
            _ => [1, 1],
        }
    }

    fn with_scalar(&mut self, operator: &str, x: &str, value: f64) -> String {
        let value = self.scalar(value);
        self.emit(operator, &[x, &value], Vec::new())
    }

    fn reshape(&mut self, x: &str, shape: &[usize]) -> String {
        let shape = self.ints(shape);
        self.emit("Reshape", &[x, &shape], Vec::new())
    }

    fn convolution(&mut self, op: &Conv2d, inputs: &[&str]) -> String {
        let attributes = vec![
            ints("strides", &op.stride),
            ints("pads", op.padding.iter().chain(&op.padding)),
            ints("dilations", &op.dilation),
            int("group", op.groups as i64),
        ];
        self.emit("Conv", inputs, attributes)
    }

    /// `Gemm` for matrices, else a product with the transposed weight.
    fn linear(&mut self, node: &Node, inputs: &[&str]) -> String {
        if self.shape(node, 0).len() == 2 {
            return self.emit("Gemm", inputs, vec![int("transB", 1)]);
        }
        let weight = self.emit("Transpose", &[inputs[1]], vec![ints("perm", &[1, 0])]);
        let product = self.emit("MatMul", &[inputs[0], &weight], Vec::new());
        match inputs.get(2) {
            Some(bias) => self.emit("Add", &[&product, bias], Vec::new()),
            None => product,
        }
    }

    /// Indices are signed in ONNX.
    fn embedding(&mut self, node: &Node, ids: &str, weight: &str) -> String {
        let id = node.inputs.first().and_then(|id| self.graph.node(*id));
        let signed = id.is_some_and(|id| id.output.dtype == DType::I64);
        let ids = match signed {
            true => ids.to_string(),
            false => self.emit("Cast", &[ids], vec![int("to", i64::from(element::INT64))]),
        };
        self.emit("Gather", &[weight, &ids], vec![int("axis", 0)])
    }

    fn attention(&mut self, scale: f64, [q, k, v]: [&str; 3]) -> String {
        let keys = self.emit("Transpose", &[k], vec![ints("perm", &[0, 1, 3, 2])]);
        let scores = self.emit("MatMul", &[q, &keys], Vec::new());
        let scores = self.with_scalar("Mul", &scores, scale);
        let shares = self.emit("Softmax", &[&scores], vec![int("axis", 3)]);
        self.emit("MatMul", &[&shares, v], Vec::new())
    }

    fn layer_norm(&mut self, node: &Node, op: &LayerNorm, inputs: &[&str]) -> String {
        let axis = node.output.rank() - self.shape(node, 1).len();
        let attributes = vec![int("axis", axis as i64), float("epsilon", op.eps)];
        self.emit("LayerNormalization", inputs, attributes)
    }

    /// Groups as the channels of an instance normalisation.
    fn group_norm(&mut self, node: &Node, op: &GroupNorm, inputs: &[&str]) -> String {
        let shape = &node.output.shape;
        let (batch, channels) = (shape[0], shape[1]);
        let rest = shape.iter().product::<usize>() / (batch * op.groups).max(1);
        let grouped = self.reshape(inputs[0], &[batch, op.groups, rest]);
        let ones = self.floats(&[op.groups], &vec![1.0; op.groups]);
        let zeros = self.floats(&[op.groups], &vec![0.0; op.groups]);
        let normal = self.emit(
            "InstanceNormalization",
            &[&grouped, &ones, &zeros],
            vec![float("epsilon", op.eps)],
        );
        let normal = self.reshape(&normal, shape);
        let mut column = vec![1; shape.len() - 1];
        column[0] = channels;
        let weight = self.reshape(inputs[1], &column);
        let bias = self.reshape(inputs[2], &column);
        let scaled = self.emit("Mul", &[&normal, &weight], Vec::new());
        self.emit("Add", &[&scaled, &bias], Vec::new())
    }

    /// Padding before and after, so that rounding down gives as many windows as the node has.
    fn pads(
        &self,
        node: &Node,
        kernel: [usize; 2],
        stride: [usize; 2],
        pads: [usize; 2],
    ) -> [usize; 4] {
        let size = self.size(node);
        let after = |axis: usize| {
            let steps = node.output.shape.get(axis + 2).copied().unwrap_or(1);
            let needed = (steps - 1) * stride[axis] + kernel[axis];
            needed
                .saturating_sub(size[axis] + pads[axis])
                .max(pads[axis])
        };
        [pads[0], pads[1], after(0), after(1)]
    }

    fn max_pool(&mut self, node: &Node, op: &MaxPool2d, x: &str) -> String {
        let pads = self.pads(node, op.kernel, op.stride, op.padding);
        let attributes = vec![
            ints("kernel_shape", &op.kernel),
            ints("strides", &op.stride),
            ints("pads", &pads),
        ];
        self.emit("MaxPool", &[x], attributes)
    }

    fn average_pool(&mut self, node: &Node, op: &AvgPool2d, x: &str) -> Result<String> {
        let pads = self.pads(node, op.kernel, op.stride, op.padding);
        let overhangs = pads[..2] != pads[2..];
        // Padding counts in the mean, what lies behind it doesn't: ONNX has no word for that.
        if overhangs && op.count_include_pad {
            return Err(refused(
                "AveragePool",
                &node.scope,
                "has a window that overhangs the padding, which counts in the mean",
                "set ceil_mode or count_include_pad to false",
            ));
        }
        let attributes = vec![
            ints("kernel_shape", &op.kernel),
            ints("strides", &op.stride),
            ints("pads", &pads),
            int("count_include_pad", i64::from(op.count_include_pad)),
        ];
        Ok(self.emit("AveragePool", &[x], attributes))
    }

    fn interpolate(&mut self, node: &Node, op: &Interpolate, x: &str) -> String {
        let size = self.ints(&node.output.shape);
        let attributes = match op.mode {
            Interpolation::Nearest => vec![
                string("mode", "nearest"),
                string("coordinate_transformation_mode", "asymmetric"),
                string("nearest_mode", "floor"),
            ],
            Interpolation::Bilinear { align_corners } => vec![
                string("mode", "linear"),
                string(
                    "coordinate_transformation_mode",
                    if align_corners {
                        "align_corners"
                    } else {
                        "half_pixel"
                    },
                ),
            ],
        };
        self.emit("Resize", &[x, "", "", &size], attributes)
    }

    fn slice(&mut self, op: &Slice, x: &str) -> String {
        let starts = self.ints(&[op.start]);
        let ends = self.ints(&[op.end]);
        let axes = self.ints(&[op.dim]);
        let steps = self.ints(&[op.step]);
        self.emit("Slice", &[x, &starts, &ends, &axes, &steps], Vec::new())
    }

    fn reduce(&mut self, operator: &str, x: &str, dims: &[usize], keep_dim: bool) -> String {
        let axes = self.ints(dims);
        let keep = int("keepdims", i64::from(keep_dim));
        self.emit(operator, &[x, &axes], vec![keep])
    }
}
