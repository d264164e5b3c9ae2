//! Activations: one enum, since they hold nothing and models want to be configured with one.

use candle_core::{Result, Tensor};
use candle_nn::Module;
use tallow_tensor::ops;

/// An elementwise nonlinearity, any shape in, the same shape out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activation {
    /// `max(x, 0)`: `nn.ReLU`.
    #[default]
    Relu,
    /// `min(max(x, 0), 6)`: `nn.ReLU6`.
    Relu6,
    /// `x Φ(x)`, with the error function: `nn.GELU()`.
    Gelu,
    /// `0.5 x (1 + tanh(sqrt(2/π) (x + 0.044715 x³)))`: `nn.GELU(approximate="tanh")`.
    GeluTanh,
    /// `x sigmoid(x)`: `nn.SiLU`.
    Silu,
    /// `1 / (1 + exp(-x))`: `nn.Sigmoid`.
    Sigmoid,
    /// `tanh(x)`: `nn.Tanh`.
    Tanh,
    /// `x min(max(x + 3, 0), 6) / 6`: `nn.Hardswish`.
    Hardswish,
}

impl Module for Activation {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        match self {
            Self::Relu => ops::relu(xs),
            Self::Relu6 => ops::relu6(xs),
            Self::Gelu => ops::gelu(xs),
            Self::GeluTanh => ops::gelu_tanh(xs),
            Self::Silu => ops::silu(xs),
            Self::Sigmoid => ops::sigmoid(xs),
            Self::Tanh => ops::tanh(xs),
            Self::Hardswish => ops::hardswish(xs),
        }
    }
}
