//! The vocabulary: [`Op`] names every operation that Tallow knows.
//!
//! Each operation is a struct with its attributes, in the file of its family, and a `Rule` that says its name,
//! the roles of its inputs, its shape rule and its cost. To add one: write the struct and its rule, add a variant
//! here, and follow the compiler, which asks for the arm in `Op::rule` and then in every reader of graphs.
//!
//! A [`Param`] or an [`Input`] is an operation too, one that reads nothing.

use serde::{Deserialize, Serialize};

use crate::{ShapeError, TensorType};

mod attention;
mod batch;
mod check;
mod conv;
mod dropout;
mod elementwise;
mod fused;
mod gradient;
mod linear;
mod loss;
mod norm;
mod opaque;
mod pool;
mod quantize;
mod reduce;
mod resize;
mod rule;
mod shape;
mod softmax;
mod source;

pub use attention::Attention;
pub use batch::{
    BatchStats, Clamp, FoldBatchNorm, Normalize, NormalizeBackward, NormalizeSums, RunningStat,
    Statistic,
};
pub use conv::Conv2d;
pub use dropout::{DropPath, Dropout};
pub use elementwise::{AddScalar, Gelu, MulScalar};
pub use fused::{FusedConv2d, Layout, Pointwise, PointwiseStep, PointwiseValue, Relayout};
pub use gradient::{Grad, Saved};
pub use loss::CrossEntropy;
pub use norm::{BatchNorm, GroupNorm, LayerNorm};
pub use opaque::Opaque;
pub use pool::{AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, MaxPool2d};
pub use quantize::{FakeQuantize, Form, Int8Conv2d, QuantizeToWords, Quantized};
pub use reduce::{Mean, Sum};
pub use resize::{Interpolate, Interpolation};
pub(crate) use rule::{Attributes, Rule};
pub use shape::{Concat, Expand, Permute, Reshape, Slice};
pub use softmax::{LogSoftmax, Softmax};
pub use source::{Constant, Input, Literal, Param, ParamKind};

/// An operation and its attributes. Every one gives exactly one value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A value that the caller feeds.
    Input(Input),
    /// A named parameter or buffer of the model.
    Param(Param),
    /// A value that is the same in every run.
    Constant(Constant),

    /// Two-dimensional convolution.
    Conv2d(Conv2d),
    /// `x · Wᵀ + b`: x `[..., I]`, weight `[O, I]`, optional bias `[O]`, giving `[..., O]`.
    Linear,
    /// Matrix product, PyTorch's `matmul` for operands of two or more dimensions: `[..., M, K]` times `[..., K, N]`
    /// gives `[..., M, N]`; leading dimensions broadcast.
    MatMul,
    /// Rows of a table, picked by index: ids (any shape, integers below `V`), weight `[V, D]`, giving `[ids..., D]`.
    Embedding,
    /// Scaled dot-product attention.
    Attention(Attention),

    /// Sum of two values, broadcasting.
    Add,
    /// Difference of two values, broadcasting.
    Sub,
    /// Product of two values, broadcasting.
    Mul,
    /// Quotient of two values, broadcasting.
    Div,
    /// `x + value`.
    AddScalar(AddScalar),
    /// `x · value`.
    MulScalar(MulScalar),

    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// Gaussian error linear unit.
    Gelu(Gelu),
    /// `x · sigmoid(x)`.
    Silu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x · min(max(x + 3, 0), 6) / 6`.
    Hardswish,

    /// Batch normalisation.
    BatchNorm(BatchNorm),
    /// Layer normalisation.
    LayerNorm(LayerNorm),
    /// Group normalisation.
    GroupNorm(GroupNorm),

    /// Maximum over windows.
    MaxPool2d(MaxPool2d),
    /// Mean over windows.
    AvgPool2d(AvgPool2d),
    /// Mean over as many windows as the output has positions.
    AdaptiveAvgPool2d(AdaptiveAvgPool2d),
    /// Maximum over as many windows as the output has positions.
    AdaptiveMaxPool2d(AdaptiveMaxPool2d),
    /// Resampling to another height and width.
    Interpolate(Interpolate),

    /// `exp(x) / Σ exp(x)` along a dimension.
    Softmax(Softmax),
    /// Logarithm of the softmax.
    LogSoftmax(LogSoftmax),
    /// Mean cross entropy of logits.
    CrossEntropy(CrossEntropy),

    /// Zeroes elements at random and scales the rest.
    Dropout(Dropout),
    /// Zeroes whole samples at random and scales the rest.
    DropPath(DropPath),

    /// Joins values along a dimension.
    Concat(Concat),
    /// The same elements in another shape.
    Reshape(Reshape),
    /// Dimensions in another order.
    Permute(Permute),
    /// A range of one dimension.
    Slice(Slice),
    /// Repeats dimensions of size one.
    Expand(Expand),

    /// Mean over dimensions.
    Mean(Mean),
    /// Sum over dimensions.
    Sum(Sum),

    /// The nearest bfloat16, kept as a 32-bit float.
    RoundBf16,
    /// The nearest of evenly spaced values, kept as a float.
    FakeQuantize(FakeQuantize),

    /// A module that runs as it is.
    Opaque(Opaque),

    /// The gradient of an operation with respect to one of its inputs.
    Grad(Grad),
    /// Mean and variance of each channel.
    BatchStats(BatchStats),
    /// Normalising by given statistics.
    Normalize(Normalize),
    /// The sums that the gradient of normalising needs.
    NormalizeSums(NormalizeSums),
    /// The gradient of normalising with respect to its input.
    NormalizeBackward(NormalizeBackward),
    /// The next running statistic of batch normalisation.
    RunningStat(RunningStat),
    /// Factor and summand that are left of batch normalisation in inference.
    FoldBatchNorm(FoldBatchNorm),
    /// A convolution with what follows it.
    FusedConv2d(FusedConv2d),
    /// Elementwise operations in a row.
    Pointwise(Pointwise),
    /// Activations as whole numbers.
    QuantizeToWords(QuantizeToWords),
    /// A convolution of whole numbers.
    Int8Conv2d(Int8Conv2d),
    /// The same value in another order in memory.
    Relayout(Relayout),
}

impl Op {
    /// The operation's rule; the one place that lists them all.
    fn rule(&self) -> &dyn Rule {
        match self {
            Self::Input(op) => op,
            Self::Param(op) => op,
            Self::Constant(op) => op,
            Self::Conv2d(op) => op,
            Self::Linear => &linear::Linear,
            Self::MatMul => &linear::MatMul,
            Self::Embedding => &linear::Embedding,
            Self::Attention(op) => op,
            Self::Add => &elementwise::ADD,
            Self::Sub => &elementwise::SUB,
            Self::Mul => &elementwise::MUL,
            Self::Div => &elementwise::DIV,
            Self::AddScalar(op) => op,
            Self::MulScalar(op) => op,
            Self::Relu => &elementwise::RELU,
            Self::Relu6 => &elementwise::RELU6,
            Self::Gelu(op) => op,
            Self::Silu => &elementwise::SILU,
            Self::Sigmoid => &elementwise::SIGMOID,
            Self::Tanh => &elementwise::TANH,
            Self::Hardswish => &elementwise::HARDSWISH,
            Self::BatchNorm(op) => op,
            Self::LayerNorm(op) => op,
            Self::GroupNorm(op) => op,
            Self::MaxPool2d(op) => op,
            Self::AvgPool2d(op) => op,
            Self::AdaptiveAvgPool2d(op) => op,
            Self::AdaptiveMaxPool2d(op) => op,
            Self::Interpolate(op) => op,
            Self::Softmax(op) => op,
            Self::LogSoftmax(op) => op,
            Self::CrossEntropy(op) => op,
            Self::Dropout(op) => op,
            Self::DropPath(op) => op,
            Self::Concat(op) => op,
            Self::Reshape(op) => op,
            Self::Permute(op) => op,
            Self::Slice(op) => op,
            Self::Expand(op) => op,
            Self::Mean(op) => op,
            Self::Sum(op) => op,
            Self::RoundBf16 => &elementwise::ROUND_BF16,
            Self::FakeQuantize(op) => op,
            Self::Opaque(op) => op,
            Self::Grad(op) => op,
            Self::BatchStats(op) => op,
            Self::Normalize(op) => op,
            Self::NormalizeSums(op) => op,
            Self::NormalizeBackward(op) => op,
            Self::RunningStat(op) => op,
            Self::FoldBatchNorm(op) => op,
            Self::FusedConv2d(op) => op,
            Self::Pointwise(op) => op,
            Self::QuantizeToWords(op) => op,
            Self::Int8Conv2d(op) => op,
            Self::Relayout(op) => op,
        }
    }

    /// The operation's name as PyTorch's functional form spells it: `conv2d`, `batch_norm`, `max_pool2d`, ...
    pub fn name(&self) -> &'static str {
        self.rule().name()
    }

    /// What input number `index` is to the operation: `x`, `weight`, `running_mean`, ...
    ///
    /// ```
    /// use tallow_graph::{Op, op::Conv2d};
    ///
    /// let conv = Op::Conv2d(Conv2d::default());
    /// assert_eq!(conv.input_role(1), "weight");
    /// ```
    pub fn input_role(&self, index: usize) -> &'static str {
        self.rule().signature().role(index)
    }

    /// The type of what the operation gives for inputs of these types.
    ///
    /// ```
    /// use tallow_graph::{Op, TensorType, op::Conv2d};
    ///
    /// let stem = Op::Conv2d(Conv2d { stride: [2, 2], padding: [3, 3], ..Conv2d::default() });
    /// let image = TensorType::f32([1, 3, 224, 224]);
    /// let out = stem.infer(&[image.clone(), TensorType::f32([64, 3, 7, 7])])?;
    /// assert_eq!(out, TensorType::f32([1, 64, 112, 112]));
    ///
    /// let error = stem.infer(&[image, TensorType::f32([64, 4, 7, 7])]).unwrap_err();
    /// assert!(error.to_string().starts_with("conv2d(x: f32[1, 3, 224, 224], weight: f32[64, 4, 7, 7]): "));
    /// # Ok::<(), tallow_graph::ShapeError>(())
    /// ```
    ///
    /// # Errors
    /// [`ShapeError`] where the operation can't take them: their number, element types, ranks or sizes.
    pub fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, ShapeError> {
        let rule = self.rule();
        rule.signature()
            .check(inputs.len())
            .and_then(|()| rule.infer(inputs))
            .map_err(|problem| problem.at(rule, inputs))
    }

    /// Multiply-adds of convolutions, matrix products and attention; 0 for everything else, as summary tables
    /// count. `inputs` and `output` are types that [`Op::infer`] accepts.
    pub fn macs(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        self.rule().macs(inputs, output)
    }

    /// Floating-point operations: a multiply-add counts as two, an addition, a comparison, a division, a root or an
    /// exponential as one, and moving data as none. Meant for rates and shares, not for exact accounting.
    pub fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        self.rule().flops(inputs, output)
    }
}
