//! From operations to kernel calls: for each node a closure over slices, made once when a plan is built.
//!
//! Images that the `channels_last` pass put in that order reach a closure as `[N, H, W, C]`; everything else is
//! row-major. The files beside this one hold one family of operations each.

mod convolution;
pub(crate) mod elementwise;
mod int8;
mod normalization;
mod opaque;
mod pooling;
mod product;
mod reduction;
mod shape;
mod softmax;

use tallow_graph::op::Grad;
use tallow_graph::{Node, Op, TensorType};
use tallow_kernels::workspace::Workspace;

use crate::eager::Modules;
use crate::plan::Choices;
use crate::{Error, Result};

/// What a kernel gives.
pub(crate) type Outcome = tallow_kernels::Result<()>;

/// A value that a kernel reads.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    /// 32-bit floats.
    Floats(&'a [f32]),
    /// Integers: labels and ids.
    Ints(&'a [i64]),
}

/// What a kernel call reads and writes.
pub(crate) struct Io<'a> {
    pub(crate) reads: &'a [Value<'a>],
    /// The input whose memory `out` is, if one is; it is empty among `reads`.
    pub(crate) taken: Option<usize>,
    pub(crate) out: &'a mut [f32],
    pub(crate) workspace: &'a Workspace,
}

impl<'a> Io<'a> {
    /// Input `index`; empty if it isn't there or holds integers, which kernels refuse by its length.
    pub(crate) fn floats(&self, index: usize) -> &'a [f32] {
        match self.reads.get(index) {
            Some(Value::Floats(values)) => values,
            _ => &[],
        }
    }

    /// Input `index`, if it holds integers.
    pub(crate) fn ints(&self, index: usize) -> Option<&'a [i64]> {
        match self.reads.get(index) {
            Some(Value::Ints(values)) => Some(values),
            _ => None,
        }
    }
}

/// Why a call failed.
pub(crate) enum Fault {
    Kernel(tallow_kernels::Error),
    /// A module that runs as it is, or another rank.
    Other(Error),
}

impl From<tallow_kernels::Error> for Fault {
    fn from(error: tallow_kernels::Error) -> Self {
        Self::Kernel(error)
    }
}

impl From<candle_core::Error> for Fault {
    fn from(error: candle_core::Error) -> Self {
        Self::Other(error.into())
    }
}

/// A call: a kernel, or a module that runs as it is.
pub(crate) type Run = Box<dyn Fn(&mut Io<'_>) -> std::result::Result<(), Fault> + Send + Sync>;

/// A node as a kernel call.
pub(crate) struct Lowered {
    pub(crate) run: Run,
    /// Inputs whose memory the output may take.
    pub(crate) in_place: &'static [usize],
    /// A weight that is brought into another form first.
    pub(crate) pack: Option<Pack>,
}

/// A kernel as a call.
pub(crate) fn kernel(run: impl Fn(&mut Io<'_>) -> Outcome + Send + Sync + 'static) -> Run {
    Box::new(move |io| run(io).map_err(Fault::Kernel))
}

/// The other form of a weight: the call reads it instead of the weight.
pub(crate) struct Pack {
    /// Which input the weight is.
    pub(crate) input: usize,
    /// Floats of the packed form.
    pub(crate) len: usize,
    /// Reads the weight, writes the packed form.
    pub(crate) run: Run,
}

impl Lowered {
    fn new(run: impl Fn(&mut Io<'_>) -> Outcome + Send + Sync + 'static) -> Self {
        Self {
            run: kernel(run),
            in_place: &[],
            pack: None,
        }
    }

    /// A call that other ranks take part in.
    fn joint(
        run: impl Fn(&mut Io<'_>) -> std::result::Result<(), Fault> + Send + Sync + 'static,
    ) -> Self {
        Self {
            run: Box::new(run),
            in_place: &[],
            pack: None,
        }
    }

    /// Lets the output take the memory of one of these inputs.
    fn in_place(mut self, inputs: &'static [usize]) -> Self {
        self.in_place = inputs;
        self
    }

    fn packing(mut self, pack: Pack) -> Self {
        self.pack = Some(pack);
        self
    }
}

/// A node, and the types of what it reads.
pub(crate) struct Site<'a> {
    pub(crate) node: &'a Node,
    pub(crate) inputs: Vec<&'a TensorType>,
    /// Whether products are to be computed by the CPU's instructions for bfloat16; their operands are rounded already.
    pub(crate) bf16: bool,
    /// Whether weights are packed in every run, since they change.
    pub(crate) packs: bool,
}

impl Site<'_> {
    fn output(&self) -> &TensorType {
        &self.node.output
    }

    fn shape(&self, input: usize) -> &[usize] {
        self.inputs.get(input).map_or(&[], |ty| &ty.shape)
    }

    /// `[N, C, H, W]` of a shape.
    fn image(&self, shape: &[usize]) -> Result<[usize; 4]> {
        let dims = <[usize; 4]>::try_from(shape);
        dims.map_err(|_| self.unsupported("works on images here", "give it [N, C, H, W]"))
    }

    fn unsupported(&self, problem: &str, remedy: &'static str) -> Error {
        Error::Unsupported {
            operation: self.node.op.name().to_string(),
            module: self.node.scope.clone(),
            problem: problem.to_string(),
            remedy,
        }
    }

    fn kernel_error(&self, source: tallow_kernels::Error) -> Error {
        Error::Kernel {
            operation: self.node.op.name(),
            module: self.node.scope.clone(),
            source: Box::new(source),
        }
    }
}

/// What lowering may ask.
pub(crate) struct Context<'c> {
    pub(crate) choices: &'c mut dyn Choices,
    /// The modules that run as they are.
    pub(crate) modules: &'c Modules,
    /// As [`Site::bf16`].
    pub(crate) bf16: bool,
}

/// The kernel call of a node; `None` where it makes nothing new: inputs, parameters, constants, and other shapes of
/// the same elements.
pub(crate) fn lower(site: &Site<'_>, context: &mut Context<'_>) -> Result<Option<Lowered>> {
    let choices = &mut *context.choices;
    Ok(Some(match &site.node.op {
        Op::Input(_) | Op::Param(_) | Op::Constant(_) | Op::Reshape(_) => return Ok(None),
        Op::Conv2d(op) => convolution::conv2d(site, op, choices)?,
        Op::FusedConv2d(op) => convolution::fused(site, op, choices)?,
        Op::Grad(grad) => gradient(site, grad, context)?,
        Op::Opaque(op) => opaque::forward(site, op, context.modules)?,
        Op::Linear => product::linear(site)?,
        Op::MatMul => product::matmul(site)?,
        Op::Embedding => product::embedding(site)?,
        Op::Attention(op) => product::attention(site, op.scale)?,
        Op::Add | Op::Sub | Op::Mul | Op::Div => elementwise::binary(site)?,
        Op::AddScalar(op) => elementwise::add_scalar(op.value),
        Op::MulScalar(op) => elementwise::mul_scalar(op.value),
        Op::Relu | Op::Relu6 | Op::Gelu(_) | Op::Silu | Op::Sigmoid | Op::Tanh | Op::Hardswish => {
            elementwise::activation(site)?
        }
        Op::Pointwise(op) => elementwise::joined(site, op)?,
        Op::RoundBf16 => elementwise::round_bf16(),
        Op::FakeQuantize(op) => elementwise::fake_quantize(site, op),
        Op::QuantizeToWords(op) => int8::quantize_to_words(site, op)?,
        Op::Int8Conv2d(op) => int8::conv2d(site, op)?,
        Op::Dropout(op) => elementwise::dropout(op),
        Op::DropPath(op) => elementwise::drop_path(site, op),
        Op::BatchNorm(op) => normalization::batch_norm(site, op)?,
        Op::BatchStats(_) => normalization::batch_stats(site)?,
        Op::Normalize(op) => normalization::normalize(site, op)?,
        Op::NormalizeSums(op) => normalization::sums(site, op)?,
        Op::NormalizeBackward(op) => normalization::backward(site, op)?,
        Op::RunningStat(op) => normalization::running(op),
        Op::FoldBatchNorm(op) => normalization::fold(op),
        Op::LayerNorm(op) => normalization::layer_norm(site, op),
        Op::GroupNorm(op) => normalization::group_norm(site, op),
        Op::MaxPool2d(op) => pooling::max(site, op)?,
        Op::AvgPool2d(op) => pooling::average(site, op)?,
        Op::AdaptiveAvgPool2d(_) => pooling::adaptive_average(site)?,
        Op::AdaptiveMaxPool2d(_) => pooling::adaptive_max(site)?,
        Op::Interpolate(op) => pooling::interpolate(site, op)?,
        Op::Softmax(op) => softmax::softmax(site, op.dim)?,
        Op::LogSoftmax(op) => softmax::log_softmax(site, op.dim)?,
        Op::CrossEntropy(op) => softmax::cross_entropy(site, op)?,
        Op::Concat(op) => shape::concat(site, op)?,
        Op::Permute(op) => shape::permute(site, op)?,
        Op::Slice(op) => shape::slice(site, op)?,
        Op::Expand(_) => shape::expand(site)?,
        Op::Relayout(op) => shape::relayout(site, op)?,
        Op::Mean(op) => reduction::mean(site, &op.dims),
        Op::Sum(op) => reduction::sum(site, &op.dims),
    }))
}

fn gradient(site: &Site<'_>, grad: &Grad, context: &mut Context<'_>) -> Result<Lowered> {
    let choices = &mut *context.choices;
    match (&*grad.of, grad.wrt) {
        (Op::Conv2d(op), 0) => convolution::backward_input(site, grad, op, choices),
        (Op::Conv2d(op), _) => convolution::backward_weight(site, grad, op, choices),
        (Op::Linear, 0) => product::linear_backward_input(site),
        (Op::Linear, _) => product::linear_backward_weight(site),
        (Op::Embedding, _) => product::embedding_backward(site),
        (Op::LayerNorm(op), wrt) => Ok(normalization::layer_norm_backward(site, op, grad, wrt)),
        (Op::GroupNorm(op), wrt) => Ok(normalization::group_norm_backward(site, op, grad, wrt)),
        (Op::MaxPool2d(op), _) => pooling::max_backward(site, op, grad),
        (Op::AvgPool2d(op), _) => pooling::average_backward(site, op, grad),
        (Op::AdaptiveAvgPool2d(_), _) => pooling::adaptive_average_backward(site, grad),
        (Op::AdaptiveMaxPool2d(_), _) => pooling::adaptive_max_backward(site, grad),
        (Op::Interpolate(op), _) => pooling::interpolate_backward(site, op, grad),
        (Op::Softmax(op), _) => softmax::softmax_backward(site, op.dim),
        (Op::LogSoftmax(op), _) => softmax::log_softmax_backward(site, op.dim),
        (Op::CrossEntropy(op), _) => softmax::cross_entropy_backward(site, op),
        (Op::Slice(op), _) => shape::slice_backward(site, op),
        (Op::Opaque(op), _) => opaque::backward(site, op, context.modules),
        (of, _) => match elementwise::activation_of(of) {
            Some(activation) => Ok(elementwise::activation_backward(activation)),
            None => Err(site.unsupported("has no kernel", "train this part eagerly")),
        },
    }
}
