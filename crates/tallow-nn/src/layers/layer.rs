//! Any layer, as containers hold it.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::ModuleT;
use tallow_tensor::opaque::{self, SharedModule};

/// Any layer or model behind a pointer: where the type is only known at run time, or several stand side by side.
///
/// A layer that is written in raw candle operations can't be captured. Behind a `Layer` it can still be part of a compiled
/// model: the rest is compiled, and it runs as it is (`Options::fullgraph(false)` of `tallow-compile`).
///
/// ```
/// # use candle_core::{Device, Tensor}; use candle_nn::ModuleT;
/// use tallow_nn::{Activation, Flatten, Layer};
/// # fn main() -> candle_core::Result<()> {
/// let layers = [Layer::new(Activation::Relu), Layer::new(Flatten), Layer::new(|xs: &Tensor| xs * 2.0)];
/// let mut xs = Tensor::new(&[[[-1f32], [3.]]], &Device::Cpu)?;
/// for layer in &layers {
///     xs = layer.forward_t(&xs, false)?;
/// }
/// assert_eq!(xs.to_vec2::<f32>()?, [[0., 6.]]);
/// # Ok(()) }
/// ```
pub struct Layer(SharedModule);

impl Layer {
    /// Hides the type of `layer`.
    pub fn new(layer: impl ModuleT + Send + Sync + 'static) -> Self {
        Self(Arc::new(layer))
    }
}

impl ModuleT for Layer {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        opaque::call(&self.0, xs, train)
    }
}
